"""Signal handlers that record, in the middle of a record."""

from __future__ import annotations

from pathlib import Path

from tests.processes import run_python


def test_a_signal_handler_may_record(tmp_path: Path) -> None:
    """A handler that logs, thousands of times inside of `log` and of itself, neither hangs nor garbles the journal."""
    script = """
import signal, otel_rl
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Logged
run = otel_rl.init(dir=".", exporters=[], agent="off", quiet=True, project="p", id="i")
fired = depth = deepest = 0
def handler(*_):
    global fired, depth, deepest
    depth += 1
    deepest = max(deepest, depth)
    if depth < 4:  # Python runs a handler inside of itself without end if its signal comes faster than it returns
        again()
    run.log({"from_handler": 1.0}, step=fired)
    fired += 1
    depth -= 1
    again()
def again():
    if fired < 2000:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
signal.signal(signal.SIGALRM, handler)
again()
logged = 0
while fired < 2000:
    run.log({"loss": float(logged)}, step=logged)
    logged += 1
signal.setitimer(signal.ITIMER_REAL, 0)
run.finish()
reader = Reader(next(run.dir.glob("local/*/journals/rank0.attempt0.*")), AnyRecord)
names = []
while records := reader.read():
    names += [name for r in records if isinstance(r, Logged) for name in r.values]
print(names.count("loss") == logged, names.count("from_handler") == fired, reader.skipped_bytes, deepest > 1)
"""
    assert run_python(script, tmp_path) == "True True 0 True\n"


def test_a_handler_that_the_trainer_sets_stays(tmp_path: Path) -> None:
    """It gets the signal before and after the run has ended, and in a child; a signal without one ends the process."""
    script = """
import os, signal, sys, otel_rl
run = otel_rl.init(dir=".", exporters=[], agent="off", quiet=True, project="p", id="i")
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
os.kill(os.getpid(), signal.SIGTERM)
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(0)
os.wait()
run.finish(0)
os.kill(os.getpid(), signal.SIGTERM)
if (child := os.fork()) == 0:
    os.kill(os.getpid(), signal.SIGXCPU)
print(os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGXCPU)
"""
    assert run_python(script, tmp_path) == "True\nhandled\nhandled\nhandled\nTrue\n"
