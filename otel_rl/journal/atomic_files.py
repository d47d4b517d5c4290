"""Files that are replaced in one step, and what files take."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def make_directory(place: Path) -> None:
    """Make a directory; where the place is a link to one that is gone, make that again.

    Raises:
        OSError: It cannot be made.
    """
    try:
        place.resolve().mkdir(parents=True, exist_ok=True)
    except RuntimeError as error:  # Python before 3.13 does not raise OSError for links in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place)) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file in one step; a reader sees the old content or the new.

    Raises:
        OSError: It cannot be written; the error names the file, always in the same words.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # a pid is not unique: containers count from 1
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def disk_usage(path: Path) -> int:
    """Return the bytes of disk that the files in a directory and below it take; what goes meanwhile takes none."""
    found = 0
    for directory, directories, files in os.walk(path):  # unlike `rglob`, it passes over one that goes meanwhile
        for name in [*directories, *files]:
            with contextlib.suppress(OSError):
                found += os.stat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH116, PTH118
    return found
