"""Several runs on one screen: their list, and their curves laid over each other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, both_ends, fit_line, line, marked, safe
from otel_rl.look.terminal import drawing, listing, words
from otel_rl.look.terminal.scene import Drawn, window
from otel_rl.recorder.convert.cells import right
from otel_rl.recorder.facts.ranges import value_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.terminal.phases import Points
    from otel_rl.recorder.archive.present import RunPresent

_STYLES: tuple[Style, ...] = ("first", "second", "third", "fourth")
_LEAST, _MOST = 4, 12
"""Lines of a metric: its name, and the curves."""


def draw(
    runs: Sequence[RunPresent], whole: Mapping[tuple[str, str], Points], cells: int, height: int, cursor: int | None
) -> Drawn:
    """Draw the list of runs, and below it a curve of each main metric that at least one of them has.

    Args:
        runs: The runs; of those behind the fourth, curves have no color of their own.
        whole: Whole curves by the path of the run and the name of the metric, as far as they are read.
        cells: The width.
        height: The height.
        cursor: The row of the cursor; `None` where nobody can move it.
    """
    names = list(dict.fromkeys(curve.name for run in runs for curve in run.progress.curves))
    of_list = min(len(runs), max(3, height // 3))
    at = window(len(runs), cursor or 0, of_list)
    head, *rows = listing.table(runs, cells - 3, time.time_ns())
    lines = [(StyledText("   "), *head)]
    for number, row in list(enumerate(rows))[at : at + of_list]:
        full = (StyledText(f" {_sign(number)} ", _style(number)), *row)
        lines.append(marked(full, cells) if number == cursor else fit_line(full, cells))
    room = height - len(lines)
    each = max(_LEAST, min(_MOST, room // max(1, len(names))))
    columns = 2 if room < each * len(names) and cells >= 2 * 38 else 1
    of_column = (cells - 2 * (columns - 1)) // columns
    blocks = [_block(runs, whole, name, of_column, each - 1) for name in names[: max(0, room // each) * columns]]
    for number in range(0, len(blocks), columns):
        for parts in zip(*blocks[number : number + columns], strict=True):
            lines.append(fit_line([span for part in parts for span in (*part, StyledText("  "))], cells))
    return Drawn(lines[:height], 1, at, len(runs), of_list)


def names_of(run: RunPresent) -> list[str]:
    """Return the names of the curves of a run."""
    return [curve.name for curve in run.progress.curves]


def _sign(number: int) -> str:
    return str(number + 1) if number < len(_STYLES) else " "


def _style(number: int) -> Style:
    return _STYLES[number] if number < len(_STYLES) else "dim"


def _block(
    runs: Sequence[RunPresent], whole: Mapping[tuple[str, str], Points], name: str, cells: int, rows: int
) -> list[Line]:
    """Draw a metric of all runs: its name with the last values, and the curves on one scale."""
    curves = [(number, points) for number, run in enumerate(runs) if (points := _points(run, whole, name))]
    values = [value for _, points in curves for _, value in points if value is not None]
    steps = [step for _, points in curves for step, _ in points]
    last = [StyledText(f" {_sign(number)} {words.number(points[-1][1])} ", _style(number)) for number, points in curves]
    head = both_ends((StyledText(f" {safe(name)} ", "bold"),), last[: len(_STYLES)], cells)
    if not values:
        return [head, *[fit_line((), cells)] * rows]
    x, y = (min(steps), max(steps)), value_range(values)[:2]
    drawn = [(number, drawing.curve(points, cells - 11, rows, x, y)) for number, points in curves]
    lines = [head]
    for row in range(rows):
        axis = words.number(y[1]) if row == 0 else words.number(y[0]) if row == rows - 1 else ""
        over = _over([(number, of_run[row]) for number, of_run in drawn])
        lines.append(fit_line((StyledText(right(axis, 9) + " ", "dim"), *over), cells))
    return lines


def _points(run: RunPresent, whole: Mapping[tuple[str, str], Points], name: str) -> Points:
    recent: Points = next((list(curve.points) for curve in run.progress.curves if curve.name == name), [])
    read = whole.get((run.path, name), [])
    return [*read, *(point for point in recent if not read or point[0] > read[-1][0])]


def _over(rows: Sequence[tuple[int, str]]) -> Line:
    """Return a row of several curves; a cell that two share has the dots of both, and the color of the later one."""
    spans: list[StyledText] = []
    for cell in zip(*(row for _, row in rows), strict=True):
        bits, style = 0x2800, ""
        for (number, _), character in zip(rows, cell, strict=True):
            if character != chr(0x2800):
                bits |= ord(character)
                style = _style(number)
        spans.append(StyledText(chr(bits), style))
    return tuple(spans) or line()
