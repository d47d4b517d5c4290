"""Tables in texts: the cells below a header that is the name of a secret.

Lines are read as psql, MySQL, Markdown, rich, CSV, pandas and HTML write tables. The time is linear: each line is
looked at as a header, or as a line below one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.secrets.last_word import REDACTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Decide = Callable[[str, str], bool]


class _TableLayout(NamedTuple):
    """How a kind of table separates cells."""

    between: re.Pattern[str]
    has_spaces: bool = False  # whether a cell of the header can have several words
    row: str = ""  # a text that each line of the table has; others are not of it, and do not end it


_ROW_BEGINS, _ROW_ENDS = "<tr", "</tr>"
_LAYOUTS = (
    _TableLayout(re.compile(r"[|│┃║]"), has_spaces=True),
    _TableLayout(
        re.compile(
            rf"(?:{_ROW_BEGINS}\b[^<>]{{0,128}}>)?\s{{0,32}}(?:</t[dh]>\s{{0,32}})?(?:<t[dh]\b[^<>]{{0,128}}>|{_ROW_ENDS})\s{{0,32}}"
        ),
        has_spaces=True,
        row=_ROW_BEGINS,
    ),
    _TableLayout(re.compile(r"\t")),
    _TableLayout(re.compile(r"[,;]")),
    _TableLayout(re.compile(r"(?<=\S) {2,}(?=\S)")),
)
_NAME = re.compile(r"\s*[\"'`]?(?P<name>[^\W\d][\w.-]{0,63})[\"'`]?\s*")
_NAMES = re.compile(r"\s*[*\"'`]{0,2}(?P<name>[^\W\d][\w.-]{0,31}(?: [\w.-]{1,31}){0,3})[*\"'`]{0,2}\s*")
_VALUE = re.compile(r"(?P<before>[\s\"'`]*)(?P<value>(?=[^\s\d]{0,1024}\d)[^\s\"'`<{$%*\[][^\s\"'`]{5,1023})[\s\"'`]*")
_RULE = re.compile(r"(?=.*[-=━─═])[-=+|:\s━─═│┃║┏┳┓┡╇┩├┼┤╞╪╡╭┬╮╠╬╣╟╢╔╦╗┌┐┠╂┨]+")
_LONGEST_LINE = 4096


def without_columns(text: str, words: Iterable[str], is_secret: Decide) -> tuple[str, int]:
    """Replace the secrets in the columns of tables; return the text, and their number.

    Args:
        text: The text.
        words: The words in lower case of which one is in the name of each secret.
        is_secret: Whether a value is a secret below a name.
    """
    small = text.lower()
    if not (there := [word for word in words if word in small]):
        return text, 0
    lines = list(_lines(text))
    total = 0
    headers: dict[_TableLayout, list[str]] = {}
    for number, line in enumerate(lines):
        small = line.lower()
        has_word = any(word in small for word in there)
        if not (headers or has_word) or len(line) > _LONGEST_LINE or _RULE.fullmatch(line):
            continue
        for layout in _LAYOUTS:
            if layout.row not in line:
                continue
            if layout in headers:
                found = _without_cells(line, layout, headers[layout], is_secret)
                if found is None:
                    del headers[layout]
                elif found[1]:
                    lines[number], total = found[0], total + found[1]
                    break
            if has_word and layout not in headers and (names := _names_in(line, layout)):
                headers[layout] = names
    return ("".join(lines), total) if total else (text, 0)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text; a row of HTML is one line, however it is written."""
    *rows, rest = text.split(_ROW_ENDS)
    for row in rows:
        before, begin, cells = row.rpartition(_ROW_BEGINS)
        yield from before.splitlines(keepends=True)
        yield f"{begin}{cells}{_ROW_ENDS}"
    yield from rest.splitlines(keepends=True)


def _names_in(line: str, layout: _TableLayout) -> list[str]:
    """Return the names of the columns; none if the line is not the header of a table."""
    cells = layout.between.split(line)
    pattern = _NAMES if layout.has_spaces else _NAME
    found = [pattern.fullmatch(cell) for cell in cells]
    if len(cells) == 1 or any(one is None and cell.strip() for one, cell in zip(found, cells, strict=True)):
        return []
    return [one["name"] if one else "" for one in found]


def _without_cells(line: str, layout: _TableLayout, names: list[str], is_secret: Decide) -> tuple[str, int] | None:
    """Return a line without the secrets below names, and their number; `None` if it is not one of the table."""
    parts = re.split(f"({layout.between.pattern})", line)
    shift = (len(parts) + 1) // 2 - len(names)  # pandas has no name for the first column
    if shift not in (0, 1):
        return None
    total = 0
    for place, name in enumerate(names, shift):
        found = _VALUE.fullmatch(parts[2 * place]) if name else None
        if found and is_secret(name, found["value"]):
            parts[2 * place] = f"{found['before']}{REDACTED}{parts[2 * place][found.end('value') :]}"
            total += 1
    return "".join(parts), total
