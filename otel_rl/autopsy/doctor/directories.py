"""The directory of runs: can it be written, has it room, and what its file system can do."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from otel_rl.autopsy.doctor.check import Check
from otel_rl.recorder.directory.directory import FULL
from otel_rl.recorder.facts import wording
from otel_rl.recorder.files.file_systems import is_shared, what_fails
from otel_rl.recorder.files.mounts import type_of
from otel_rl.recorder.files.private_directories import home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.autopsy.doctor.check import CheckedMachine

_NAME = "directory"
_PROBE = 16 << 20
"""Bytes that a rank reserves when it starts."""
_LITTLE = 1 << 30
"""Free bytes below which a long run may fill the disk."""
_ELSEWHERE = "Set OTEL_RL_DIR to a directory that you can write."


def directory(machine: CheckedMachine) -> Iterator[Check]:
    """Check the directory of runs, and the local one if the first is shared by machines."""
    yield from _of(machine.directory)
    place = _existing(machine.directory)
    if not is_shared(place):
        return
    local = home("" if machine.settings is None else machine.settings.local_dir)
    if local is None:
        text = "no local directory for journals, next to a shared directory of runs"
        yield Check(_NAME, "failed", text, "Set OTEL_RL_LOCAL_DIR to a directory on a local disk.")
    else:
        yield from _of(local)


def _of(wanted: Path) -> Iterator[Check]:
    """Check a directory, or the one in which it would be made."""
    wanted = wanted.absolute()
    place = _existing(wanted)
    kind = type_of(place) or "unknown"
    try:
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{place} is not a directory")
        lacking = what_fails(place)
        _reserve(place)
    except OSError as error:
        fix = "Free some space, or raise the quota." if error.errno in FULL else _ELSEWHERE
        if error.errno == errno.EROFS:
            fix = f"The file system is mounted read-only. {_ELSEWHERE}"
        yield Check(_NAME, "failed", f"{wanted} cannot be written: {error.strerror or error}", fix)
        return
    free = shutil.disk_usage(place).free
    shared = "shared by machines" if is_shared(place) else "of this machine alone"
    if lacking:
        yield Check(_NAME, "failed", f"{wanted} ({kind}) does not support {lacking}", _ELSEWHERE)
    elif free < _LITTLE:
        fix = "Free some space; `archive_limit` and `journal_limit` bound what a run takes."
        yield Check(_NAME, "warning", f"{wanted} has {wording.memory(free)} free", fix)
    else:
        yield Check(_NAME, "ok", f"{wanted} ({kind}, {shared}) has {wording.memory(free)} free")


def _existing(wanted: Path) -> Path:
    return next(place for place in (wanted, *wanted.absolute().parents) if place.exists())


def _reserve(place: Path) -> None:
    """Reserve as much as a rank does, which finds a quota that `df` does not show.

    Raises:
        OSError: There is no room.
    """
    with tempfile.TemporaryFile(dir=place) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, _PROBE)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # some network file systems
                raise
