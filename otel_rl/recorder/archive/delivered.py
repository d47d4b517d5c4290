"""How far exporters were fed from the archive of a machine by another one: `delivered.json` in the machine's folder."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.files.atomic_files import read_json, write_atomically, write_first

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "delivered.json"
FRESH_S = 60.0
"""Time in seconds without a change after which the process that writes a file counts as dead."""

Counts = dict[str, int]
"""Numbers of items, by kind."""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of items of an archive that exporters have."""

    who: str  # the process that feeds them
    exporters: dict[str, Counts]  # numbers of items that an exporter has, by its name
    works: bool  # whether the process is at work; one that was killed stays so, and the file is not replaced any more
    missing: int = 0  # number of items that the archive had lost; only the machine itself may have them


def place_of(run: Path, machine: str) -> Path:
    """Return the path of the file."""
    return run / ARCHIVE / machine / _FILE


def read(run: Path, machine: str) -> Delivered | None:
    """Return the content of the file; `None` if nobody has fed exporters from the archive of the machine."""
    return read_json(place_of(run, machine), Delivered)


def write(run: Path, machine: str, delivered: Delivered) -> None:
    """Replace the file.

    Raises:
        OSError: It cannot be written.
    """
    write_atomically(place_of(run, machine), msgspec.json.encode(delivered))


def is_fresh(path: Path) -> bool:
    """Return whether a file was changed in the last 60 s, by the clock of its file server."""
    try:
        changed = path.stat().st_mtime
        probe = path.with_name(f".{path.name}.{os.getpid()}")
        write_first(probe, b"x")
        now = probe.stat().st_mtime
    except OSError:
        return False
    with contextlib.suppress(OSError):
        probe.unlink()
    return now - changed < FRESH_S


def feeder(run: Path, machine: str) -> str:
    """Return which process feeds exporters from the archive of a machine now; empty if there is none."""
    # A lock would not do: file servers such as sshfs keep it on one machine, and NFS has none for a directory.
    last = read(run, machine)
    return last.who if last is not None and last.works and is_fresh(place_of(run, machine)) else ""


def most(*counts: Counts) -> Counts:
    """Return the largest number of each kind."""
    return {kind: max(count.get(kind, 0) for count in counts) for kind in {kind for count in counts for kind in count}}


def least(*counts: Counts) -> Counts:
    """Return the smallest number of each kind."""
    return {kind: min(count.get(kind, 0) for count in counts) for kind in {kind for count in counts for kind in count}}
