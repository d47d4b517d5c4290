"""The birth of a run directory, by which a machine knows whether what it keeps elsewhere is of this run.

The part of a machine that is outside of the run directory outlives it. If the directory is removed, another run may
have the same path and id, and would continue with the journals, the outbox and the cursors of the one before. So a run
directory has a random id, parts are named by it, and each knows its own.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import read_json, write_atomically, write_first

if TYPE_CHECKING:
    from pathlib import Path

_warnings = Occasional(log_of("otel_rl"))
_FILE = "birth.json"
_KEPT_DAYS = 30
"""Days since the last change after which a part of another birth is removed, as systemd does in /var/tmp."""
_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class Birth:
    """The birth of a run directory, as a part of it knows it that is elsewhere; other parts know none."""

    def __init__(self, run: Path, part: Path) -> None:
        self._run, self._device, self._written_at = run, _device_of(run), -1
        self._own = read_json(part / _FILE, _Id)

    def fate(self) -> Literal["", "removed", "replaced"]:
        """Return what became of the run directory; empty if it is there or cannot be read, or knows no birth."""
        if self._own is None or (written_at := self._read_time()) == self._written_at:
            return ""
        if not written_at:
            return "removed" if _device_of(self._run) == self._device else ""  # or is not mounted
        now = read_json(self._run / _FILE, _Id)
        if now == self._own:
            self._written_at = written_at
        return "replaced" if now not in (None, self._own) else ""

    def _read_time(self) -> int:
        """Return when the file was written, which network file systems keep in a cache; 0 if it is gone."""
        try:
            return (self._run / _FILE).stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError:
            return self._written_at


def _device_of(path: Path) -> int:
    """Return the device of a path, or of what is left above it."""
    for level in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            return level.stat().st_dev
    return 0


def birth_of(run: Path) -> str:
    """Return the birth of a run directory, which begins with the first call.

    Raises:
        OSError: It cannot be written.
    """
    place = run / _FILE
    if (known := read_json(place, _Id)) is None:
        write_first(place, msgspec.json.encode(secrets.token_hex(8)))
        # Read back: of two machines that write at once, both must take the birth of the one that was first
        # (faults/test_file_systems.py).
        known = read_json(place, _Id)
    if known is None:  # damaged
        write_atomically(place, msgspec.json.encode(known := secrets.token_hex(8)))
    return known


def part_of(run: Path, base: Path, name: str) -> Path:
    """Return the path of a new part in a directory of this machine; report or remove those of other births.

    Raises:
        OSError: The birth of the run cannot be written.
    """
    label, birth = hashlib.sha256(os.fsencode(run)).hexdigest()[:16], birth_of(run)
    for other in base.glob(f"{label}.*.{name}"):
        if other.name != f"{label}.{birth}.{name}":
            _leave_alone(other, run)
    return base / f"{label}.{birth}.{name}"


def note(run: Path, part: Path) -> None:
    """Note in a part that the run directory points to it, which a run directory of another birth does not.

    Raises:
        OSError: It cannot be written.
    """
    if read_json(part / _FILE, _Id) != (birth := birth_of(run)):
        write_atomically(part / _FILE, msgspec.json.encode(birth))


def restore(run: Path, part: Path) -> bool:
    """Give a run directory that was removed the birth that a part knows; return whether it has this birth now.

    Raises:
        OSError: It cannot be written.
    """
    if (own := read_json(part / _FILE, _Id)) is not None:
        write_first(run / _FILE, msgspec.json.encode(own))
    return own in (None, birth_of(run))


def _leave_alone(part: Path, run: Path) -> None:
    """Remove a part of another birth that nothing has changed for long, and say that any other one is there."""
    with suppress(OSError):
        changed = max(path.stat().st_mtime for path in (part, *part.rglob("*")))
        if time.time() - changed > _KEPT_DAYS * 86_400:
            shutil.rmtree(part)
        else:
            _warnings.warn(
                f"{part} has records of another run that was in {run} and was removed: they are left alone, and "
                f"removed after {_KEPT_DAYS} days"
            )
