"""`otel_rl.report`: the report of a run for programs and notebooks."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.look.page.report import page_of
from otel_rl.look.reader.runs import RunReader
from otel_rl.recorder.facts import wording
from otel_rl.recorder.files.atomic_files import write_atomically

if TYPE_CHECKING:
    import os

_HEIGHT_PX = 900


class Report:
    """The report of a run: one HTML file that makes no request. As the value of a notebook's cell, it shows itself.

    Attributes:
        html: The text of the file.
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def write(self, file: str | os.PathLike[str]) -> Path:
        """Write the file, which is replaced at once, and return its path.

        Raises:
            OSError: It cannot be written.
        """
        path = Path(file).absolute()
        write_atomically(path, self.html.encode())
        return path

    def __repr__(self) -> str:
        return f"<report of {wording.fixed(len(self.html), 1, -6)} MB>"

    def _repr_html_(self) -> str:
        """Return a frame of its own, which can run its script but not reach the notebook."""
        frame = f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.html)}" width="100%" height="{_HEIGHT_PX}"'
        return f'{frame} style="border:0" title="Report of a run"></iframe>'


def report(run: str | os.PathLike[str] | RunReader) -> Report:
    """Return the report of a run: the findings and their evidence.

    Args:
        run: A run directory, or what `open_run` returned.

    Raises:
        FileNotFoundError: It is not a run directory.
    """
    return Report(page_of(run.place.path if isinstance(run, RunReader) else run))
