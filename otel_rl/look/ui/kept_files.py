"""The directory in which the page keeps what it has computed, for the next server. Several servers may share it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import PRIVATE, make_directory
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.own_files import ForeignError, read_own

if TYPE_CHECKING:
    from collections.abc import Iterable

VERDICT, RANGES, PAGE = ".json", ".npz", ".page"
"""How the names of files end, which begin with the keys of their runs."""
_ENDS = (VERDICT, RANGES, PAGE)
_UNUSED_S = 30 * 24 * 3600.0
_MOST_BYTES = 1 << 30
"""Bytes of all files; those that were not used for longest are removed first."""
_KEY_BYTES = 8
_warnings = Occasional(log_of("otel_rl"))


def key_of(path: Path) -> str:
    """Return the key of a run directory: the same for each server, and nothing of its path."""
    return hashlib.sha256(os.fsencode(path.resolve())).digest()[:_KEY_BYTES].hex()


def cache_directory() -> Path | None:
    """Return the directory of this user, without files that nobody needs any more; `None` if there is none."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path("~/.cache").expanduser()
    place = base / "otel-rl" / "page"
    try:
        make_directory(place.parent, PRIVATE.directory)
        with OwnDirectory(place, PRIVATE.directory):
            _clean(place, time.time() - _UNUSED_S)
            return place
    except OSError as error:
        _warnings.warn(f"{place}: {error.strerror or error}; the page keeps nothing between two starts")
        return None


def kept_bytes(directory: Path | None, key: str, end: str) -> bytes:
    """Return what is kept of a run, which is then in use; empty if it is nothing, or another user's."""
    if directory is None:
        return b""
    with contextlib.suppress(OSError, ForeignError):
        file = directory / f"{key}{end}"
        content = read_own(file)
        os.utime(file, follow_symlinks=False)
        return content
    return b""


def keep(directory: Path | None, key: str, end: str, content: bytes) -> None:
    """Keep something of a run; each file is written whole, and says what it was made of."""
    if directory is None:
        return
    try:
        write_atomically(directory / f"{key}{end}", content, PRIVATE.file)
    except OSError as error:
        _warnings.warn(f"{directory}: {error.strerror}; what was computed is not kept")


def forget(directory: Path | None, keys: Iterable[str]) -> None:
    """Remove the files of runs that are there no more."""
    if directory is None:
        return
    for name in (f"{key}{end}" for key in keys for end in _ENDS):
        with contextlib.suppress(OSError):
            (directory / name).unlink()


def _clean(directory: Path, before: float) -> None:
    with os.scandir(directory) as entries:
        known = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries if entry.name.endswith(_ENDS)]
    size = 0
    for status, file in sorted(known, key=lambda item: -item[0].st_mtime):
        size += status.st_size
        if status.st_mtime < before or size > _MOST_BYTES:
            with contextlib.suppress(OSError):
                os.unlink(file)  # noqa: PTH108 - a text, as `scandir` has it
