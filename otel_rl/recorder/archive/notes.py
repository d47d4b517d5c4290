"""Notes in the footers of files: which run a file is of, and the steps of its lines.

The bytes are searched: the library has no way to a footer that a damaged file does not break.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from otel_rl.recorder.files.own_files import open_regular

if TYPE_CHECKING:
    from pathlib import Path

RUN_NOTE = "otel_rl.run"
"""The note with the random id of the run of which a machine's files are; files of earlier versions have none."""
STEPS_NOTE = "steps"
"""The note with the first and the last step of a file of messages, by which most files need not be read."""
_BYTES = 4096
"""Bytes at the end of a file with its notes; of the footer, only the order of each column's values is behind them."""


@lru_cache(1 << 16)
def steps_in(path: Path) -> range | None:
    """Return the steps from the first to the last one of a file, which never changes; `None` if it has no such note.

    Raises:
        OSError: It cannot be read now.
    """
    bounds = re.fullmatch(r"(\d{1,18}) (\d{1,18})", note_in(path, STEPS_NOTE), re.ASCII)
    return range(int(bounds[1]), int(bounds[2]) + 1) if bounds else None


def note_in(path: Path, name: str) -> str:
    """Return a note in the footer of a file; empty without one. Its value has at most 127 bytes.

    Raises:
        OSError: It cannot be read now.
    """
    with open_regular(path, links=False) as file:
        file.seek(-min(_BYTES, path.stat().st_size), os.SEEK_END)
        end = file.read()
    note = re.search(rb"(?s)\x18%c%s\x18([\x00-\x7f])" % (len(name), re.escape(name.encode())), end)
    return end[note.end() : note.end() + note[1][0]].decode(errors="replace") if note else ""
