"""Lines of a screen: texts with styles, of a known width. Recorded texts cannot act on the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size

from otel_rl.errors.sinks import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Style = str
"""A key of `STYLES`, such as the category of a phase. An unknown one has no look."""


class Look(NamedTuple):
    """How a style looks: a color as RGB, or none, and whether it is bold or dim."""

    color: tuple[int, int, int] | None = None
    bold: bool = False
    dim: bool = False


_PLAIN = Look()
_WORDS = re.compile(r"\s*\S+|\s+\Z")
_SKY, _ORANGE, _GREEN = (0, 135, 215), (175, 135, 0), (0, 135, 95)
_PURPLE, _VERMILION, _GREY = (175, 95, 175), (215, 95, 0), (135, 135, 135)
"""The hues of Okabe and Ito, which color-blind readers can tell apart, as dark as black and white allow both."""
STYLES: dict[Style, Look] = {
    "dim": Look(dim=True),
    "bold": Look(bold=True),
    "title": Look(bold=True),
    "key": Look(bold=True),
    "good": Look(_GREEN, bold=True),
    "note": Look(_SKY),
    "warning": Look(_ORANGE, bold=True),
    "bad": Look(_VERMILION, bold=True),
    "rollout": Look(_SKY),
    "training": Look(_ORANGE),
    "reward": Look(_GREEN),
    "sync": Look(_PURPLE),
    "evaluation": Look(_GREY),
    "checkpoint": Look(_GREY),
    "waiting": Look(),
    "none": Look(dim=True),
    "first": Look(_SKY),
    "second": Look(_ORANGE),
    "third": Look(_GREEN),
    "fourth": Look(_PURPLE),
}
"""The look of each style, on dark and on light."""


def look_of(style: Style) -> Look:
    """Return how a style looks."""
    return STYLES.get(style, _PLAIN)


_MARKED = ("", "dim", "bold", "bad", "warning")


class Span(NamedTuple):
    """A text of one style; `mark` inverts it, as the row of the cursor."""

    text: str
    style: Style = ""
    mark: bool = False


Line = tuple[Span, ...]


def line(*parts: str | tuple[str, Style] | Span) -> Line:
    """Return a line of texts that this program wrote itself."""
    return tuple(Span(part) if isinstance(part, str) else Span(*part) for part in parts)


def safe(text: str) -> str:
    """Return a recorded text, which can hold anything, as a text of one line that only has visible characters."""
    return one_line(text)


def width(row: Line) -> int:
    """Return the number of cells that a line takes."""
    return sum(cell_len(span.text) for span in row)


def fit(text: str, cells: int) -> str:
    """Return a text with exactly this many cells; one that is cut ends with `…`."""
    if cells <= 0:
        return ""
    if cell_len(text) > cells:
        return set_cell_size(text, cells - 1) + "…"
    return set_cell_size(text, cells)


def right(text: str, cells: int) -> str:
    """Return a text at the right end of this many cells."""
    missing = cells - cell_len(text)
    return " " * missing + text if missing >= 0 else fit(text, cells)


def fit_line(row: Iterable[Span], cells: int) -> Line:
    """Return a line with exactly this many cells."""
    found: list[Span] = []
    left = cells
    for span in row:
        size = cell_len(span.text)
        if size > left:
            if left > 0:
                found.append(span._replace(text=fit(span.text, left)))
            return tuple(found)
        found.append(span)
        left -= size
    if left:
        found.append(Span(" " * left))
    return tuple(found)


def folded(row: Line, cells: int) -> list[Line]:
    """Return a line as lines of at most this many cells, broken between words; all but the first are indented more."""
    text = "".join(span.text for span in row)
    indent = min(len(text) - len(text.lstrip()) + 2, cells // 2)
    found: list[list[Span]] = [[]]
    left = cells
    for span in row:
        for word in _WORDS.findall(span.text):
            if cell_len(word.rstrip()) > left and left < cells - indent:
                found.append([Span(" " * indent)])
                left = cells - indent
                word = word.lstrip()  # noqa: PLW2901
            found[-1].append(span._replace(text=word))
            left -= cell_len(word)
    return [tuple(one) for one in found]


def both_ends(start: Sequence[Span], end: Sequence[Span], cells: int) -> Line:
    """Return a line with one part at its start, and one at its end; the first is cut if both have no room."""
    of_end = width(tuple(end))
    if of_end + 4 > cells:
        return fit_line(start, cells)
    return (*fit_line(start, cells - of_end), *end)


def beside(first: Sequence[Line], second: Sequence[Line], cells: int, gap: int = 2) -> list[Line]:
    """Return two blocks side by side, the first of them with `cells` cells."""
    found = []
    for number in range(max(len(first), len(second))):
        one = first[number] if number < len(first) else ()
        other = second[number] if number < len(second) else ()
        found.append((*fit_line(one, cells), Span(" " * gap), *other))
    return found


def marked(row: Line, cells: int) -> Line:
    """Return a line as the row of the cursor; bars keep their colors."""
    return tuple(span._replace(mark=span.style in _MARKED) for span in fit_line(row, cells))
