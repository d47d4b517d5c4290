"""Records the seven runs that are drawn, as real processes, all at once: they hardly do anything but wait."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_rl.recorder.archive.present import RunPresent, present_of
from otel_rl.recorder.archive.runs import Place, place_of
from tests.collector import wait_for

KINDS = ("hung", "slow", "killed", "resumed", "diverged", "hacked", "finished")
_TIMEOUT_S = 400
_Trainer = subprocess.Popen[bytes]


@contextmanager
def recorded(directory: Path) -> Iterator[dict[str, Place]]:
    """Yield runs by their kinds, once each is as far as it is to be; those that go on end afterwards."""
    trainers = {kind: _start(kind, directory) for kind in KINDS}
    try:
        trainers["resumed"].wait(_TIMEOUT_S)
        _until("resumed", directory, lambda run: run.is_over)
        trainers["resumed"] = _start("resumed again", directory)
        for kind in KINDS:
            _until(kind, directory, _CONDITIONS.get(kind, lambda run: run.is_over))
        yield {kind: _place(kind, directory) for kind in KINDS}
    finally:
        for trainer in trainers.values():
            trainer.terminate()
        for trainer in trainers.values():
            trainer.wait()


_CONDITIONS: dict[str, Callable[[RunPresent], bool]] = {
    "hung": lambda run: run.state == "hung",
    "slow": lambda run: (run.progress.last_step or 0) >= 110,
    "diverged": lambda run: (run.progress.last_step or 0) >= 100,
    "resumed": lambda run: run.progress.attempt == 1 and run.is_over,
}
"""The moments at which runs are drawn; all others have ended then."""


def _start(kind: str, directory: Path) -> _Trainer:
    return subprocess.Popen((sys.executable, "-m", "tests.look.draw.trainer", kind, str(directory)))


def _place(kind: str, directory: Path) -> Place:
    return place_of(directory / "grpo-gsm8k" / kind)


def _until(kind: str, directory: Path, condition: Callable[[RunPresent], bool]) -> None:
    manifest = directory / "grpo-gsm8k" / kind / "run.json"
    wait_for(manifest.exists, f"the run {kind} does not begin", _TIMEOUT_S)
    wait_for(lambda: condition(present_of(_place(kind, directory))), f"the run {kind} does not get there", _TIMEOUT_S)
