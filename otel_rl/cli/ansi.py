"""Lines as text for a terminal, or for a file: with escape sequences for colors, or without any."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.cli.lines import look_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.cli.lines import Line, StyledText

_ASCII = str.maketrans(
    {
        **dict(zip("▁▂▃▄▅▆▇█", "._-~=+*#", strict=True)),
        **{chr(0x2800 + bits): "*" if bits else " " for bits in range(256)},
        "░": ":",
        "▒": "%",
        "▓": "=",
        "▚": "&",
        "▪": "o",
        "·": ".",
        "…": "~",
        "µ": "u",
        "●": "*",
        "○": "o",
        "■": "#",
        "│": "|",
        "─": "-",
        "›": ">",
        "✗": "x",
        "→": ">",
        "↑": "^",
        "↓": "v",
        "↵": "enter",
        "←": "<",
        "▸": ">",
        "≈": "~",
    }
)
"""ASCII for the characters of bars, curves and signs."""
_RESET, _BOLD, _DIM, _INVERSE = "\x1b[0m", "1", "2", "7"


class Terminal(NamedTuple):
    """The abilities of standard output."""

    width: int  # its width in cells
    height: int  # its height in lines
    is_terminal: bool  # whether it is one; a file and a pipe are not
    has_color: bool  # whether texts have colors
    has_unicode: bool  # whether characters outside of ASCII are shown


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


def _painted(span: StyledText, terminal: Terminal) -> str:
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
    red, green, blue = (0 if channel < 48 else 1 if channel < 115 else (channel - 35) // 40 for channel in color)
    return 16 + 36 * red + 6 * green + blue


def ascii_only(text: str) -> str:
    """Return a text for a terminal without Unicode; characters of recorded texts become `?`."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()
