"""Makes the file of tokens, and the one of the token for scraping next to it."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import PRIVATE
from otel_rl.recorder.settings.tokens import SCRAPE_SUFFIX, for_scraping, read

if TYPE_CHECKING:
    from pathlib import Path

_BYTES = 32


def create(path: Path, *, rotate: bool = False) -> None:
    """Write a new token, and to `scrape_path` the one for scraping, to files that only this user can read.

    Args:
        path: The file; its directory is created with mode 0700.
        rotate: If true, the token that was sent until now stays valid, in the second line.

    Raises:
        FileExistsError: There is a file, and `rotate` is false.
        SettingsError: The present file cannot be used.
        OSError: It cannot be written.
    """
    lines = [secrets.token_urlsafe(_BYTES), *(read(path)[:1] if rotate else ())]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and not rotate:
        raise FileExistsError(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Mode 0600 from the start: a file that is made private later can be read in between.
        with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write("\n".join([*lines, ""]))
            file.flush()
            os.fsync(file.fileno())
        if rotate:
            beside.replace(path)
        else:
            os.link(beside, path)  # fails if another process has just written the file
    finally:
        beside.unlink(missing_ok=True)
    write_atomically(scrape_path(path), for_scraping(lines[0]).encode(), PRIVATE.file)


def scrape_path(path: Path) -> Path:
    """Return the file with the token for scraping that follows from the first one of a file."""
    return path.with_name(path.name + SCRAPE_SUFFIX)
