"""A trainer that closes all descriptors at one moment of its life, and opens files of its own under their numbers.

Arguments: the directory, and the moment.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

PLACE, MOMENT = Path(sys.argv[1]), sys.argv[2]
OWN: dict[int, Path] = {}
CODE = 7
SETTINGS: dict[str, Any] = {
    "project": "p",
    "dir": PLACE / "runs",
    "exporters": ["jsonl"],
    "hardware": False,
    "quiet": True,
}


def content(number: int) -> bytes:
    """Return the text of the trainer's file with this number."""
    return b"checkpoint %d\n" % number


def reuse(moment: str) -> None:
    """Close the descriptors and open files, once, at the moment that was asked for."""
    if moment != MOMENT or OWN:
        return
    os.closerange(3, 1024)
    for number in range(256):
        path = PLACE / f"own{number}"
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        os.write(fd, content(number))
        # A part of them has the numbers that otel-rl keeps.
        OWN[fcntl.fcntl(fd, fcntl.F_DUPFD, 640) if number % 2 else fd] = path
        if number % 2:
            os.close(fd)


def broken() -> list[str]:
    """Return which of the trainer's descriptors are closed, or lead to another file."""
    return [path.name for fd, path in OWN.items() if not _is_same(fd, path)]


def _is_same(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


class Value:
    """A number that is computed when somebody asks for it."""

    def __float__(self) -> float:
        reuse("in a conversion")
        return 1.0

    def item(self) -> float:
        """Return the number, as a tensor does."""
        return float(self)


def say(**facts: object) -> None:
    """Write what the trainer knows for the test."""
    with (PLACE / "facts.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\n")


def train() -> None:
    """Train 12 steps."""
    reuse("before the import")
    import otel_rl

    reuse("before init")
    sys.addaudithook(lambda event, _: reuse("in init") if event == "os.mkdir" else None)
    holder = _hold(otel_rl) if MOMENT == "with a locked run" else None
    settings = SETTINGS | ({"journal_limit": 16 << 20} if MOMENT == "with full journals" else {})
    run = otel_rl.init(id="r", **settings)
    say(run=str(run.dir))
    run.on_event("rl.*", lambda *_: reuse("in a reaction"))
    if MOMENT == "in a handler of SIGTERM":
        signal.signal(signal.SIGTERM, lambda *_: reuse(MOMENT))
    reuse("after init")
    for step in range(12):
        _step(run, step)
    if holder is not None:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
    _end(run)
    if MOMENT in ("after finish", "in the next run"):
        run = otel_rl.init(id="next", **settings)
        reuse("in the next run")
        run.log({"loss": 1.0}, step=0)
        _finish(run)
    sys.exit(CODE)


def _step(run: Any, step: int) -> None:
    if step == 6:
        reuse("between steps")
        MIDDLE.get(MOMENT, id)(run)
    if MOMENT == "in a reaction" and step > 1 and not OWN:
        time.sleep(0.5)
    with run.step(step):
        if step == 6:
            reuse("in a step")
        with run.phase("generate"):
            if step == 6:
                reuse("in a phase")
            run.log({"loss": float(step) if step else math.nan, "value": Value() if step == 6 else 1.0})


def _end(run: Any) -> None:
    """End the run in the way that the moment needs."""
    if MOMENT == "at SIGTERM":
        reuse(MOMENT)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:  # the recorder looks once a second
            run.log({"loss": 1.0})
            time.sleep(0.1)
        say(broken=broken())
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if MOMENT == "at SIGTERM at once":
        reuse(MOMENT)
        say(broken=broken())
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if MOMENT == "in finish":
        threading.Timer(0.02, reuse, [MOMENT]).start()
    if MOMENT == "at exit":
        atexit.register(_at_exit)
        sys.exit(CODE)
    _finish(run)
    reuse("after finish")


def _in_log(run: Any) -> None:
    threading.Timer(0.01, reuse, ["in log"]).start()
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        run.log({"other": 1.0})


def _full_journals(run: Any) -> None:
    reuse("with full journals")
    for _ in range(40):
        run.log({f"a rather long name of a metric {number}": 0.1 for number in range(2000)})


def _in_a_thread(_run: Any) -> None:
    thread = threading.Thread(target=reuse, args=["in a thread"])
    thread.start()
    thread.join()


def _in_a_child(run: Any) -> None:
    child = os.fork()
    if not child:
        reuse("in a forked child")
        run.log({"child": 1.0})
        say(broken=broken())
        os._exit(0)
    os.waitpid(child, 0)


def _without_an_agent(run: Any) -> None:
    for process in psutil.process_iter(["cmdline"]):
        if str(run.dir) in (process.info["cmdline"] or ()):
            process.kill()
    reuse("without an agent")
    time.sleep(1.2)


def _when_asked(_run: Any) -> None:
    reuse("in an autopsy")
    say(ready=True)
    sys.stdin.readline()


def _when_locked(_run: Any) -> None:
    reuse("with a locked run")
    time.sleep(1.2)


def _in_params(run: Any) -> None:
    reuse("in params")
    run.params({"b": 1})


MIDDLE: dict[str, Callable[[Any], None]] = {
    "in log": _in_log,
    "with full journals": _full_journals,
    "in a thread": _in_a_thread,
    "in a forked child": _in_a_child,
    "without an agent": _without_an_agent,
    "in an autopsy": _when_asked,
    "in a handler of SIGTERM": _when_asked,
    "with a locked run": _when_locked,
    "in params": _in_params,
}
"""Its work between two steps at these moments."""


def _hold(otel_rl: Any) -> int:
    """Record the run in a child, so that the trainer finds it locked; return the child."""
    if not (child := os.fork()):
        otel_rl.init(id="r", **SETTINGS)
        (PLACE / "held").touch()
        while os.getppid() != 1:
            time.sleep(0.1)
        os._exit(0)
    while not (PLACE / "held").exists():
        time.sleep(0.01)
    return child


def _finish(run: Any) -> None:
    result = run.finish(60)
    say(delivered=bool(result), missing=result.missing, refused=dict(result.refused), broken=broken())


def _at_exit() -> None:
    reuse("at exit")
    say(broken=broken())


if __name__ == "__main__":
    train()
