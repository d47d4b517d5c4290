"""`write_report`: reads a run part by part, and writes the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.look.page.body import body_of
from otel_rl.look.page.document import document
from otel_rl.look.page.moment import PARTS, RunMoment
from otel_rl.recorder.files.atomic_files import write_atomically

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    _Progress = Callable[[int, int, str], object]
    """Receives which part is read: its number, how many there are, and its name; the last one is the writing."""


def write_report(path: str | os.PathLike[str], file: str | os.PathLike[str], done: _Progress = lambda *_: None) -> None:
    """Write the report of a run into a file, which is replaced at once.

    Raises:
        FileNotFoundError: `path` is not a run directory.
        OSError: The file cannot be written.
    """
    write_atomically(Path(file).absolute(), page_of(path, done).encode())


def page_of(path: str | os.PathLike[str], done: _Progress = lambda *_: None) -> str:
    """Return the report of a run as the text of an HTML file.

    Raises:
        FileNotFoundError: `path` is not a run directory.
    """
    done(0, 1, "the findings")
    now = RunMoment(path)
    data = {}
    for number, name in enumerate(PARTS, 1):
        done(number, len(PARTS) + 1, name)
        data[name] = now.part(name)
    done(len(PARTS) + 1, len(PARTS) + 1, "the page")
    return "".join(document(now.title, body_of(now), data))
