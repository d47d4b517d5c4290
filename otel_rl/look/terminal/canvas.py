"""The widget that shows lines in an application of Textual."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from otel_rl.cli.ansi import ascii_only
from otel_rl.cli.lines import fit_line, look_of

if TYPE_CHECKING:
    from textual.geometry import Size

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.terminal.reading import Reply

CSS = """
Screen { layers: below above; background: ansi_default; }
Canvas { width: 100%; height: 100%; background: ansi_default; color: ansi_default; }
Input { dock: bottom; layer: above; display: none; height: 1; border: none; padding: 0 1; }
"""
"""The styles of applications: the colors of the terminal itself."""


class ReplyArrived(Message):
    """An answer of the thread that reads a run."""

    def __init__(self, reply: Reply, path: str) -> None:
        super().__init__()
        self.reply, self.path = reply, path


class Canvas(Widget, can_focus=True):
    """A widget that shows lines."""

    def __init__(self, *, has_unicode: bool) -> None:
        super().__init__()
        self._strips: list[Strip] = []
        self._has_unicode = has_unicode

    def show(self, lines: list[Line]) -> None:
        """Show lines; only those that have changed are sent to the terminal."""
        self._strips = [self._strip(line) for line in lines]
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return a line for Textual."""
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Take all of the width."""
        return container.width

    def _strip(self, row: Line) -> Strip:
        spans = fit_line(row, self.size.width)
        texts = ((span.text if self._has_unicode else ascii_only(span.text), span) for span in spans)
        return Strip([Segment(text, _style(span.style, span.mark)) for text, span in texts], self.size.width)


@cache
def _style(name: Style, mark: bool) -> RichStyle:
    look = look_of(name)
    color = None if look.color is None else "#{:02x}{:02x}{:02x}".format(*look.color)
    return RichStyle(color=color, bold=look.bold or None, dim=look.dim or None, reverse=mark or None)
