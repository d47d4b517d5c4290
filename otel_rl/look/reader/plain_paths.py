"""Paths as DuckDB takes them: it reads `*`, `?` and `[` as patterns, and only UTF-8.

Files below a directory with such a name are read through a link to it, in a directory of this process that is removed
at its end.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import threading
from typing import TYPE_CHECKING

from otel_rl.recorder.files.private_directories import private_directory

if TYPE_CHECKING:
    from pathlib import Path

_PLAIN = re.compile(r"[^*?\[\]{}\\\x00-\x1f\x7f\ud800-\udfff]*")
_links: dict[tuple[int, Path], str] = {}
"""The link to each directory, by process: a forked child makes its own."""
_places: dict[int, str] = {}
_lock = threading.Lock()


def plain(path: Path) -> str:
    """Return a path that DuckDB takes for this file alone; its name has no such characters."""
    if _PLAIN.fullmatch(text := str(path)):
        return text
    with _lock:
        key = os.getpid(), path.parent
        if key not in _links:
            place = _place()
            link = os.path.join(place, str(len(_links)))  # noqa: PTH118
            os.symlink(path.parent, link)  # noqa: PTH211
            _links[key] = link
        return os.path.join(_links[key], path.name)  # noqa: PTH118


def _place() -> str:
    pid = os.getpid()
    if pid not in _places:
        _places[pid] = tempfile.mkdtemp(prefix="paths.", dir=private_directory())
        atexit.register(_remove, pid)
    return _places[pid]


def _remove(pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(_places[pid], ignore_errors=True)  # links, which are not followed
