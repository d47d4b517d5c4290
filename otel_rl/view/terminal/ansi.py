"""Lines as text for a terminal, or for a file: with escape sequences for colors, or without any."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.view.terminal.drawing import ascii_only
from otel_rl.view.terminal.lines import look_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.view.terminal.lines import Line, Span

_RESET, _BOLD, _DIM, _INVERSE = "\x1b[0m", "1", "2", "7"


class Terminal(NamedTuple):
    """The abilities of standard output.

    Attributes:
        width: Its width in cells.
        height: Its height in lines.
        is_terminal: Whether it is one; a file and a pipe are not.
        has_color: Whether texts have colors.
        has_unicode: Whether characters outside of ASCII are shown.
    """

    width: int
    height: int
    is_terminal: bool
    has_color: bool
    has_unicode: bool


def this_terminal(*, ascii_alone: bool) -> Terminal:
    """Return what standard output can show; `NO_COLOR` and `TERM=dumb` switch colors off."""
    size = shutil.get_terminal_size()
    is_terminal = sys.stdout.isatty()
    has_color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    return Terminal(size.columns, size.lines, is_terminal, has_color, "utf" in encoding and not ascii_alone)


def painted(rows: Iterable[Line], terminal: Terminal) -> list[str]:
    """Return the text of each line, without spaces at its end."""
    return ["".join(_painted(span, terminal) for span in _trimmed(row)) for row in rows]


def _trimmed(row: Line) -> Line:
    spans = list(row)
    while spans and not spans[-1].mark:
        last = spans.pop()
        if text := last.text.rstrip():
            spans.append(last._replace(text=text))
            break
    return tuple(spans)


def _painted(span: Span, terminal: Terminal) -> str:
    text = span.text if terminal.has_unicode else ascii_only(span.text)
    if not terminal.has_color:
        return text
    look = look_of(span.style)
    codes = [_BOLD] if look.bold else []
    codes += [_DIM] if look.dim else []
    codes += [f"38;5;{_of_256(look.color)}"] if look.color else []
    codes += [_INVERSE] if span.mark else []
    return f"\x1b[{';'.join(codes)}m{text}{_RESET}" if codes else text


def _of_256(color: tuple[int, int, int]) -> int:
    """Return the nearest color of the cube of 6 x 6 x 6 that all terminals know."""
    red, green, blue = (0 if one < 48 else 1 if one < 115 else (one - 35) // 40 for one in color)
    return 16 + 36 * red + 6 * green + blue
