"""Recorded texts of any size in lines of a screen, which are made as far as they are asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from otel_rl.recorder.convert.cells import cell_len
from otel_rl.recorder.errors.sinks import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORD = re.compile(r"\s{0,64}\S{1,64}|\s{1,64}")
"""The parts of a line. Long ones are several, so that a line of one character is not measured as a whole."""
_TAB = "    "
_MOST_MARKS = 4
"""Characters for each cell: marks above and below letters take no cell."""


def wrapped(text: str, cells: int, most: int) -> tuple[list[str], int]:
    """Return the first lines of a text in this many cells, and how many of its characters are behind them."""
    rows: list[str] = []
    read = 0
    for paragraph in _paragraphs(text.replace("\r\n", "\n")):
        for row, characters in _rows(paragraph, cells):
            if len(rows) == most:
                return rows, len(text) - read
            rows.append(row)
            read += characters
        read += 1
    return rows, 0


def _paragraphs(text: str) -> Iterator[str]:
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _rows(text: str, cells: int) -> Iterator[tuple[str, int]]:
    """Yield the lines of a paragraph, each with the number of characters that it shows.

    A word begins a line if it fits into one. Spaces stay at the begin of the first line, as in code.
    """
    row, taken, read = "", 0, 0
    for match in _WORD.finditer(text):
        word = match[0]
        shown = _shown(word)
        if row and taken + cell_len(shown) > cells >= cell_len(shown.lstrip()) and word[0].isspace():
            yield row, read
            row, taken, read = "", 0, 0
            shown = shown.lstrip()
        parts = (
            [(shown, len(word))] if taken + cell_len(shown) <= cells else [(_shown(character), 1) for character in word]
        )
        for part, characters in parts:
            if (row and taken + cell_len(part) > cells) or len(row) > _MOST_MARKS * cells:
                yield row, read
                row, taken, read = "", 0, 0
            row, taken, read = row + part, taken + cell_len(part), read + characters
    yield row, read


def _shown(text: str) -> str:
    return one_line(text.replace("\t", _TAB))
