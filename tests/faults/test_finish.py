"""`finish` from wherever it is called, and how a process ends: the last record says it."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

import otel_rl
from otel_rl.recorder.agent.input.follow import Follower
from otel_rl.recorder.files.locks import is_held
from otel_rl.recorder.journal.ending import end_by_exit
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished, Record, SpanEnded, StepEnded
from tests.collector import wait_for
from tests.processes import journal_of, local_of, start, start_python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl import Run

    RecordsOf = Callable[..., list[Record]]

_INIT = "otel_rl.init(dir='{}', exporters=[], agent='off', quiet=True, id='i', project='p')"
_BEGIN = f"import otel_rl, sys, signal, os\nrun = {_INIT.format('.')}\n"


def ended(place: Path, script: str) -> tuple[str, tuple[str, str] | None, int]:
    """Run a script; return how an agent sees that it ended."""
    start_python(_BEGIN + script, place).communicate(timeout=200)
    return end_of(place)


def end_of(place: Path) -> tuple[str, tuple[str, str] | None, int]:
    """Return how an agent sees that the process ended that recorded here."""
    follower = Follower(local_of(place / "p" / "i") / "journals", {})
    follower.find_new()
    records: list[Record] = []
    while more := follower.read(1000, time.time_ns()):
        records += [found.record for found in more]
    (end,) = (record for record in records if isinstance(record, Finished))
    assert not follower.given_up
    return end.outcome, end.error, end.exit_code


_IN_C = """
import ctypes, subprocess
subprocess.Popen(["sh", "-c", f"sleep 0.3; kill {os.getpid()}"])
ctypes.PyDLL(None).sleep(100)
"""
FINE = ("finished", None, 0)
INTERRUPTED = ("cancelled", ("SIGINT", "Interrupt"), 130)
TERMINATED = ("cancelled", ("SIGTERM", "Terminated"), 143)
EXITED = ("failed", ("SystemExit", "exit code 3"), 3)
BROKEN = ("failed", ("ValueError", "it broke"), 1)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("pass", FINE),
        ("run.finish(0)", FINE),
        ("raise ValueError('it broke')", BROKEN),
        ("with run: raise ValueError('it broke')", BROKEN),
        ("try: raise ValueError('it broke')\nfinally: run.finish(0)", BROKEN),
        ("try: raise ValueError('it broke')\nexcept ValueError: run.finish(0)", BROKEN),
        ("try: raise ValueError('it broke')\nexcept ValueError: pass", FINE),
        ("try:\n  with run.step(0): raise ValueError\nexcept ValueError: pass", FINE),
        ("try: next(iter([]))\nexcept StopIteration: run.finish(0)", FINE),
        ("sys.excepthook = lambda *_: None\nraise ValueError('it broke')", BROKEN),
        ("with run.step(0): raise ValueError('it broke')", BROKEN),
        ("os.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(9)", INTERRUPTED),
        ("with run, run.step(0): raise KeyboardInterrupt", INTERRUPTED),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nwith run: os.kill(os.getpid(), 15)", TERMINATED),
        ("with run: sys.exit(3)", EXITED),
        ("with run: sys.exit('no data')", ("failed", ("SystemExit", "no data"), 1)),
        ("with run: sys.exit(0)", FINE),
        ("with run.step(0): sys.exit(3)", EXITED),
        ("try:\n  with run.step(0): sys.exit(3)\nexcept SystemExit: run.event('goes on')", FINE),
        ("try:\n  with run.step(0): sys.exit(3)\nexcept SystemExit: pass", FINE),
        ("sys.exit(3)", EXITED),
        ("raise SystemExit(3)", EXITED),
        ("def main(): return 3\nwith run.step(0): pass\nexit(main())", EXITED),
        ("sys.exit('no data')", ("failed", ("SystemExit", "exit code 1"), 1)),
        ("sys.exit(143)", TERMINATED),
        ("sys.exit(0)", FINE),
        ("sys.exit()", FINE),
        ("try: sys.exit(3)\nexcept SystemExit: pass", FINE),
        ("run.finish(0)\nsys.exit(3)", FINE),
        ("import atexit; atexit._clear(); atexit.register(os._exit, 4); atexit.register(run._end.at_exit)", FINE),
        ("if os.fork() == 0: sys.exit(3)\nos.wait()", FINE),
        ("os.kill(os.getpid(), signal.SIGTERM)", TERMINATED),
        ("os.kill(os.getpid(), signal.SIGXCPU)", ("cancelled", ("SIGXCPU", "CPU time limit exceeded"), 152)),
        (_IN_C, TERMINATED),
        ("if (child := os.fork()) == 0: signal.pause()\nos.kill(child, 15); os.wait(); sys.exit(3)", EXITED),
        ("import threading; t = threading.Thread(target=lambda: sys.exit(3)); t.start(); t.join()", FINE),
    ],
)
def test_how_it_ended(tmp_path: Path, script: str, expected: object) -> None:
    """By an exception that leaves the run or the script, by a signal that became one, by `sys.exit`, or well."""
    if "SIGINT" in script:
        script = "signal.signal(signal.SIGINT, signal.default_int_handler)\n" + script  # a shell may have it ignored

    assert ended(tmp_path, script) == expected


@pytest.mark.parametrize(("status", "expected"), [(0, FINE), (3, EXITED)])
def test_exit_without_exit_handlers(tmp_path: Path, status: int, expected: object) -> None:
    """`otel-rl run` knows the status of `os._exit`, with which some trainers end."""
    script = f"{_BEGIN}os._exit({status})"
    process = start([sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "-c", script], tmp_path)
    process.communicate(timeout=200)

    assert process.returncode == status
    assert end_of(tmp_path) == expected


def test_the_last_row_does_not_wait_for_the_exit_status(tmp_path: Path) -> None:
    """While the process is still at its exit, every row is there; its exit status follows, and has the last word."""
    script = """
import atexit, sys, time, otel_rl
from pathlib import Path
rows = Path("p/i/rows.jsonl")
def wait():
    deadline = time.monotonic() + 20
    while (not rows.exists() or not rows.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    print(rows.read_text().count('"step"'), flush=True)
atexit.register(wait)  # it runs behind the recorder's
run = otel_rl.init(dir=".", id="i", project="p", quiet=True, hardware=False, rows={"deadline": 300})
run.log({"loss": 1.0}, step=0)
sys.exit(3)
"""
    output, _ = start_python(script, tmp_path).communicate(timeout=200)
    end = tmp_path / "p" / "i" / "run.end.json"
    wait_for(lambda: end.exists() and b'"failed"' in end.read_bytes(), "the exit status did not follow")

    assert output == "1\n"
    assert msgspec.json.decode(end.read_bytes())["exit_code"] == 3


def test_the_journal_is_locked_until_the_process_is_gone(tmp_path: Path) -> None:
    """It is when Python has ended and the C library runs what it runs at an exit; the exit status is there then."""
    script = """
import ctypes, otel_rl
def main():
    otel_rl.init(dir=".", id="i", project="p", quiet=True, agent="off").log({"loss": 1.0}, step=0)
ctypes.CDLL(None).on_exit(ctypes.CDLL(None).pause, None)  # it runs behind the handlers that come later
main()
raise SystemExit(3)
"""
    process = start_python(script, tmp_path)
    run_dir = tmp_path / "p" / "i"

    def status() -> int | None:
        journals = list(run_dir.glob("local/*/journals/rank0*"))
        end = end_by_exit(journals[0]) if journals else None
        return end.exit_code if end is not None else None

    wait_for(lambda: status() == 3, "the exit status is not written")
    held = is_held(journal_of(run_dir))
    process.kill()
    process.communicate(timeout=60)

    assert held
    assert not is_held(journal_of(run_dir))


def test_a_failed_child_of_multiprocessing(tmp_path: Path) -> None:
    """Such a process runs no `atexit`, and its exception reaches no hook."""
    (tmp_path / "child.py").write_text(
        f"def work():\n  {_BEGIN.replace(chr(10), chr(10) + '  ')}raise ValueError('it broke')\n"
    )
    script = (
        "import child, multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    p = multiprocessing.get_context('spawn').Process(target=child.work); p.start(); p.join()\n"
    )
    start_python(script, tmp_path).communicate(timeout=200)

    assert end_of(tmp_path) == BROKEN


def test_what_was_open_has_the_error(recording: Run, records_of: RecordsOf) -> None:
    """A step and a phase that are open while the run ends by an exception end with it."""
    step, phase = recording.step(0), recording.phase("work")
    step.__enter__()
    phase.__enter__()
    try:
        raise ValueError("it broke")
    except ValueError:
        recording.finish(0)
    ends = [record for record in records_of(recording) if isinstance(record, SpanEnded | StepEnded)]

    assert [type(end) for end in ends] == [SpanEnded, StepEnded]
    assert [end.error for end in ends] == [("ValueError", "it broke")] * 2


def test_an_exception_of_before_the_run(tmp_path: Path) -> None:
    """A run that begins where another exception is being dealt with has not failed by that."""
    script = f"run.finish(0)\ntry: 1 / 0\nexcept ZeroDivisionError: {_INIT.format('again')}.finish(0)\n"
    start_python(_BEGIN + script, tmp_path).communicate(timeout=200)
    records = Reader(journal_of(tmp_path / "again" / "p" / "i"), AnyRecord).read()

    assert isinstance(records[-1], Finished)
    assert records[-1].outcome == "finished"


def test_it_closes_nothing_twice(recording: Run, tmp_path: Path) -> None:
    """A second `finish` leaves alone the files that were opened since, which have the numbers of the ones it closed."""
    recording.finish(0)
    opened = [os.open(tmp_path / str(n), os.O_CREAT | os.O_RDWR) for n in range(20)]
    recording.finish(0)
    recording.__exit__(None, None, None)

    for fd in opened:
        os.close(fd)  # raises if somebody has


def test_several_threads(recording: Run, records_of: RecordsOf) -> None:
    """Of 20 threads that end the run at once, one does, and all have its result."""
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(bool(recording.finish(10)))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [False] * 20
    assert sum(isinstance(record, Finished) for record in records_of(recording)) == 1


def test_a_thread_waits_no_longer_than_it_says(recording: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread that is still waiting for the backends holds up nobody for longer than its own timeout."""
    waits, goes_on = threading.Event(), threading.Event()

    def wait(timeout: float) -> bool:
        waits.set()
        return goes_on.wait(60)

    monkeypatch.setattr(recording._session, "wait_until_delivered", wait)
    first = threading.Thread(target=recording.finish)
    first.start()
    waits.wait(60)

    assert not recording.finish(0.01)
    goes_on.set()
    first.join()
    assert recording.finish(0)


def test_a_signal_handler(recording: Run, monkeypatch: pytest.MonkeyPatch, records_of: RecordsOf) -> None:
    """A handler that interrupts `finish` in its own thread may call it: it does not wait for itself."""
    found: list[bool] = []

    def wait(timeout: float) -> bool:
        if not found:
            found.append(False)
            found.append(bool(recording.finish(1)))
        return True

    monkeypatch.setattr(recording._session, "wait_until_delivered", wait)

    assert recording.finish(1)
    assert found == [False, True]
    assert isinstance(records_of(recording)[-1], Finished)


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        (lambda run: None, 0),
        (lambda run: run.table("t", {"text": ["x" * 100_000]}, step=0), 0),  # a limit as stated
        (lambda run: run.step(-1), 1),
        (lambda run: run.log({"loss": "text"}, step=0), 1),
        (lambda run: run.log(None, step=0), 1),
    ],
)
def test_what_was_refused_does_not_make_it_false(
    recording: Run, monkeypatch: pytest.MonkeyPatch, call: Callable[[Run], object], refused: int
) -> None:
    """It was never recorded, and everything that was recorded is delivered; the result names it."""
    monkeypatch.setattr(recording._session, "wait_until_delivered", lambda timeout: True)
    call(recording)
    result = recording.finish(1)

    assert (bool(result), result.missing, len(result.refused)) == (True, "", refused)


def test_a_record_that_could_not_be_written_makes_it_false(recording: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else is delivered, but what the trainer gave is not."""

    def full(record: Record) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording._session, "wait_until_delivered", lambda timeout: True)
    with monkeypatch.context() as disk:
        disk.setattr(recording._session.journal, "append", full)
        recording.log({"loss": 1.0}, step=0)
    result = recording.finish(1)

    assert (bool(result), result.refused) == (False, {})
    assert result.missing == "not recorded: record: [Errno 28] No space left on device (1 time)"


def test_the_last_warning_names_what_was_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each mistake with its count; the rows are there, so the result is true."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False, exporters=["jsonl"])
    for _ in range(3):
        run.log({"loss": 1.0, "name": [None]}, step=0)
    run.log({"loss": 1.0}, step=-1)
    result = run.finish(30)

    first, second = result.refused
    assert (bool(result), run.refused, list(result.refused.values())) == (True, {"value": 3, "step": 1}, [3, 1])
    expected = f"run {run.id}: refused, or recorded in part: {first} (3 times), {second} (1 time)"
    assert caplog.messages[-1] == expected


@pytest.mark.parametrize("timeout", [None, "soon", float("nan"), -1, 10**400, [], b"1"])
def test_a_timeout_that_is_none(recording: Run, timeout: object) -> None:
    """It raises nothing, and does not wait forever."""
    assert not recording.finish(timeout)  # type: ignore[arg-type]
