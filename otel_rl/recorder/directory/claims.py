"""Which directory has an id of a project on this machine: trackers know a run by these two alone.

A training in another directory, such as a job of Hydra or another part of a Slurm step, may ask for an id that a
training has already. The first one has it, and the others get the next numbers.
"""

from __future__ import annotations

import os
import socket
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.errors.sinks import file_name
from otel_rl.recorder.files.atomic_files import read_json, write_atomically
from otel_rl.recorder.files.locks import LONG_S, Lock
from otel_rl.recorder.files.private_directories import make_private, private_directory
from otel_rl.recorder.files.processes import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_rl.recorder.settings.settings import Settings

_STARTING_S = 60.0
"""Seconds that another process may need to make the directory of a run whose id it has claimed."""


class _Claim(msgspec.Struct, frozen=True):
    """The claim of a run directory on an id."""

    path: str
    process: str
    time: float

    def is_of_another(self, path: str) -> bool:
        """Return whether another directory, which is there or is being made, has the id."""
        if self.path == path:
            return False
        is_starting = self.process != process(os.getpid()) and time.time() - self.time < _STARTING_S
        return is_starting or Path(self.path).is_dir()


def claim(settings_of: Callable[[int], Settings], numbers: Iterable[int]) -> int:
    """Return the first number of a run whose id no other directory has, and claim it.

    Args:
        settings_of: Returns the settings of a number.
        numbers: The numbers to choose from, without an end.
    """
    numbers = iter(numbers)
    first = next(numbers)
    settings = settings_of(first)
    try:
        base = os.environ.get("XDG_RUNTIME_DIR")
        top = private_directory(Path(base) if base else None)
        place = top / "ids" / file_name(socket.gethostname()) / file_name(settings.project)
        make_private(place)
        with Lock(place, patience=LONG_S):
            return next(number for number in chain([first], numbers) if _is_claimed(place, settings_of(number)))
    except OSError:  # there is no such place, or it is another user's
        return first


def _is_claimed(place: Path, settings: Settings) -> bool:
    """Claim the id, unless another directory has it."""
    entry, path = place / file_name(settings.id), str(_path(settings))
    known = read_json(entry, _Claim)
    if known is not None and known.is_of_another(path):
        return False
    if known is None or known.path != path:
        write_atomically(entry, msgspec.json.encode(_Claim(path, process(os.getpid()), time.time())))
    return True


def _path(settings: Settings) -> Path:
    return directories.place_of(settings).resolve()
