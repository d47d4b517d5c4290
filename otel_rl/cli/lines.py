"""Lines of a screen: texts with styles, of a known width. Recorded texts cannot act on the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.convert.cells import cell_len, fit
from otel_rl.recorder.errors.sinks import one_line

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
    "hung": Look(_VERMILION),
    "none": Look(dim=True),
    "first": Look(_SKY),
}
"""The look of each style, on dark and on light."""


def look_of(style: Style) -> Look:
    """Return how a style looks."""
    return STYLES.get(style, _PLAIN)


_MARKED = ("", "dim", "bold", "bad", "warning")


class StyledText(NamedTuple):
    """A text of one style; `mark` inverts it, as the row of the cursor."""

    text: str
    style: Style = ""
    mark: bool = False


Line = tuple[StyledText, ...]


def line(*parts: str | tuple[str, Style] | StyledText) -> Line:
    """Return a line of texts that this program wrote itself."""
    return tuple(StyledText(part) if isinstance(part, str) else StyledText(*part) for part in parts)


def safe(text: str) -> str:
    """Return a recorded text, which can hold anything, as a text of one line that only has visible characters."""
    return one_line(text)


def width(row: Line) -> int:
    """Return the number of cells that a line takes."""
    return sum(cell_len(span.text) for span in row)


def fit_line(row: Iterable[StyledText], cells: int) -> Line:
    """Return a line with exactly this many cells."""
    fitting: list[StyledText] = []
    left = cells
    for span in row:
        size = cell_len(span.text)
        if size > left:
            if left > 0:
                fitting.append(span._replace(text=fit(span.text, left)))
            return tuple(fitting)
        fitting.append(span)
        left -= size
    if left:
        fitting.append(StyledText(" " * left))
    return tuple(fitting)


def folded(row: Line, cells: int) -> list[Line]:
    """Return a line as lines of at most this many cells, broken between words; all but the first are indented more."""
    text = "".join(span.text for span in row)
    indent = min(len(text) - len(text.lstrip()) + 2, cells // 2)
    rows: list[list[StyledText]] = [[]]
    left = cells
    for span in row:
        for word in _WORDS.findall(span.text):
            if cell_len(word.rstrip()) > left and left < cells - indent:
                rows.append([StyledText(" " * indent)])
                left = cells - indent
                word = word.lstrip()  # noqa: PLW2901
            rows[-1].append(span._replace(text=word))
            left -= cell_len(word)
    return [tuple(row) for row in rows]


def both_ends(start: Sequence[StyledText], end: Sequence[StyledText], cells: int) -> Line:
    """Return a line with one part at its start, and one at its end; the first is cut if both have no room."""
    of_end = width(tuple(end))
    if of_end + 4 > cells:
        return fit_line(start, cells)
    return (*fit_line(start, cells - of_end), *end)


def beside(first: Sequence[Line], second: Sequence[Line], cells: int, gap: int = 2) -> list[Line]:
    """Return two blocks side by side, the first of them with `cells` cells."""
    rows = []
    for number in range(max(len(first), len(second))):
        left = first[number] if number < len(first) else ()
        other = second[number] if number < len(second) else ()
        rows.append((*fit_line(left, cells), StyledText(" " * gap), *other))
    return rows


def marked(row: Line, cells: int) -> Line:
    """Return a line as the row of the cursor; bars keep their colors."""
    return tuple(span._replace(mark=span.style in _MARKED) for span in fit_line(row, cells))
