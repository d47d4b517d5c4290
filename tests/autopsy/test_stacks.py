"""Stacks on request: of every thread, also while C code holds the GIL, without any effect on the process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_rl.autopsy import flight
from otel_rl.autopsy.evidence import Collective, Frame
from otel_rl.autopsy.stacks import Asked, ask, parsed
from otel_rl.recorder.files.signals import stacks_of
from tests.processes import journal_of, start, start_python

_INIT = 'run = otel_rl.init(dir=".", project="p", id="i", exporters=[], agent="off", quiet=True)'


def started(script: str, place: Path) -> tuple[subprocess.Popen[str], Asked, list[str]]:
    """Start a script that records; return how it can be asked, and what it has printed when it is ready."""
    process = start_python(script.replace("INIT", _INIT), place)
    assert process.stdout is not None
    printed = process.stdout.readline().split()
    found = stacks_of(journal_of(place / "p" / "i"))
    assert found is not None, printed
    return process, Asked(process.pid, *found), printed


def test_a_process_whose_gil_is_held(tmp_path: Path) -> None:
    """All of its threads are seen, the main thread first."""
    script = """
import ctypes, threading, time, otel_rl
INIT
libc = ctypes.PyDLL(None)
def other(): threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
time.sleep(0.1)
print("ready", flush=True)
libc.sleep(600)
"""
    process, asked, _ = started(script, tmp_path)
    time.sleep(0.3)
    found = ask([asked])[process.pid]
    process.kill()
    process.communicate()

    assert isinstance(found, tuple)
    assert [thread.frames[0].function for thread in found] == ["<module>", "wait"]


def test_the_names_of_threads(tmp_path: Path) -> None:
    """A process that answers the question gives the names of its threads, without secrets, and their numbers."""
    script = """
import threading, time, otel_rl
INIT
threading.Thread(target=threading.Event().wait, name="uploader password=hunT3r2x9Kq", daemon=True).start()
print(threading.main_thread().native_id, flush=True)
time.sleep(600)
"""
    process, asked, printed = started(script, tmp_path)
    time.sleep(0.3)
    found = ask([asked])[process.pid]
    process.kill()
    process.communicate()

    assert [thread.name for thread in found if not isinstance(thread, str)] == [
        "MainThread",
        "uploader password=[redacted]",
    ]
    assert not isinstance(found[0], str)
    assert [found[0].number] == [*map(int, printed)]


def test_a_forked_child_and_a_program(tmp_path: Path) -> None:
    """The first has stacks of its own; the second has no handler, is not asked, and goes on."""
    script = """
import os, subprocess, time, otel_rl
INIT
def in_child(): time.sleep(600)
if (child := os.fork()) == 0:
    in_child()
program = subprocess.Popen(["sleep", "600"])
print(child, program.pid, flush=True)
time.sleep(600)
"""
    process, asked, printed = started(script, tmp_path)
    child, program = map(int, printed)
    time.sleep(0.3)
    found = {pid: ask([asked._replace(pid=pid, has_thread=False)])[pid] for pid in (child, program)}
    os.kill(program, 0)
    for pid in (child, program, process.pid):
        os.kill(pid, 9)
    process.communicate()

    assert isinstance(found[child], tuple)
    assert found[child][0].frames[0].function == "in_child"
    assert found[program] == "it has closed the file for them, or it is another user's"


def test_a_process_that_no_longer_records(tmp_path: Path) -> None:
    """After `finish`, the signal is as before, so it is not sent."""
    script = "import time, otel_rl\nINIT\nprint('ready', flush=True)\ntime.sleep(0.5)\nrun.finish(0)\ntime.sleep(600)"
    process, asked, _ = started(script, tmp_path)
    while asked.file.exists():
        time.sleep(0.02)
    found = ask([asked])[process.pid]
    assert process.poll() is None
    process.kill()
    process.communicate()

    assert isinstance(found, str)


_WORKS = """
import hashlib, os, random, select, signal, socket, sys, threading, time, otel_rl
INIT
before = {n: signal.getsignal(n) for n in signal.valid_signals()}, signal.pthread_sigmask(signal.SIG_BLOCK, ())
near, far = socket.socketpair()
out, into = os.pipe()
near.settimeout(60)
event = threading.Event()
def feed():
    while True:
        time.sleep(0.002)
        far.send(b"x")
        os.write(into, b"y")
        event.set()
threading.Thread(target=feed, daemon=True).start()
caught = [line for line in open("/proc/self/status") if line.startswith("SigCgt")]
print("ready", flush=True)
random.seed(7)
digest, total, errors, early = hashlib.sha256(), 0.0, 0, 0
for n in range(STEPS):
    try:
        with run.step(n), run.phase("generate"):
            digest.update(near.recv(1) + os.read(out, 1))
            began = time.monotonic()
            time.sleep(0.002)
            select.select([], [], [], 0.002)
            early += time.monotonic() - began < 0.004
            event.wait(0.002)
            event.clear()
            total += sum(random.gauss(0, 1) for _ in range(200)) * (n + 1) ** 0.5
            digest.update(total.hex().encode())
            run.log({"loss": total})
    except OSError:
        errors += 1
after = {n: signal.getsignal(n) for n in signal.valid_signals()}, signal.pthread_sigmask(signal.SIG_BLOCK, ())
same = before == after and caught == [line for line in open("/proc/self/status") if line.startswith("SigCgt")]
print(digest.hexdigest(), errors, early, same)
"""


@pytest.mark.slow
def test_a_trainer_notices_nothing(tmp_path: Path) -> None:
    """Its results are equal to the bit, no call fails or returns early, and no handler is another one.

    `AUTOPSIES` is the number of times that its stacks are taken.
    """
    times = int(os.environ.get("AUTOPSIES", "100"))
    script = _WORKS.replace("STEPS", str(30 * times))
    results = []
    for name in ("asked", "left alone"):
        (tmp_path / name).mkdir()
        process, asked, _ = started(script, tmp_path / name)
        answered = 0
        while name == "asked" and answered < times and process.poll() is None:
            answered += isinstance(ask([asked]).get(process.pid), tuple)
        output, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        assert answered >= 0.9 * times * (name == "asked"), answered
        results.append(output)

    assert results[0] == results[1]
    assert results[0].split()[1:] == ["0", "0", "True"]


def test_what_faulthandler_writes() -> None:
    """Threads come with the main thread first; names with other letters, unknown lines and no frames are read."""
    text = """Current thread 0x00007f0000000700 (most recent call first):
  File "/home/m\\xfcller/train.py", line 12 in step
  File "/home/m\\xfcller/train.py", line ??? in <module>

Thread 0x00007f0000000740 [worker] (most recent call first):
  <no Python frame>

Thread 0x00007f0000000780 (most recent call first):
  File "main.py", line 1 in \\u4e3b
  ...
"""
    found = parsed(text)

    assert [(thread.name, len(thread.frames)) for thread in found] == [("", 1), ("worker", 0), ("", 1)]
    assert found[0].frames == (Frame("main.py", 1, "主"),)
    assert found[2].frames == (Frame("/home/müller/train.py", 12, "step"),)


def test_the_flight_recorder_is_asked_for(tmp_path: Path) -> None:
    """A thread waits for questions until the run ends; the answer is what PyTorch says, if it records."""
    script = """
import os, sys, threading, time, types, otel_rl
dump = '{"entries": [{"process_group": ["0", "default_pg"], "collective_seq_id": 7, "profiling_name": "gloo:barrier"}]}'
sys.modules["torch._C._distributed_c10d"] = types.SimpleNamespace(_dump_fr_trace_json=lambda *_: dump.encode())
INIT
print([one.name for one in threading.enumerate()][1:], flush=True)
input()
run.finish(0)
time.sleep(0.5)
print(threading.active_count(), flush=True)
"""
    for name, size in (("on", "2000"), ("off", "0")):
        (tmp_path / name).mkdir()
        process = start(
            [sys.executable, "-c", script.replace("INIT", _INIT)],
            tmp_path / name,
            stdin=subprocess.PIPE,
            TORCH_FR_BUFFER_SIZE=size,
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "['otel-rl-questions']"
        missing: list[str] = []
        found = flight.ask({process.pid: journal_of(tmp_path / name / "p" / "i")}, missing)
        output, errors = process.communicate("\n", timeout=60)

        assert found == (
            {process.pid: (Collective("group 0 (default_pg)", 7, "barrier", "[]"),)} if size == "2000" else {}
        )
        assert not missing
        assert output == "1\n", errors


def test_threads_that_are_no_threads(tmp_path: Path) -> None:
    """Where a library runs threads as greenlets, none waits for questions; the signal is left."""
    script = """
import _thread, time
start = _thread.start_new_thread
_thread.start_new_thread = lambda *arguments: start(*arguments)  # as gevent does
import threading, otel_rl
INIT
print(threading.active_count(), flush=True)
time.sleep(600)
"""
    process, asked, printed = started(script, tmp_path)
    found = ask([asked])[process.pid]
    process.kill()
    process.communicate()

    assert printed == ["1"]
    assert isinstance(found, tuple)
