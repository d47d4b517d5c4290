"""Bars and curves of characters. Curves that leave out points keep the lowest and the highest of each column."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText
from otel_rl.recorder.facts.ranges import place_in, value_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.cli.lines import Line, Style

    Number = float | None

_LEVELS = "▁▂▃▄▅▆▇█"
_BRAILLE = 0x2800
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of the dots of a braille character: of its left and its right column, from the lowest row on."""
_FILLS: dict[str, str] = {
    "rollout": "█",
    "training": "▓",
    "reward": "▒",
    "sync": "▚",
    "evaluation": "▄",
    "checkpoint": "▄",
    "waiting": "░",
    "other": "▪",
    "hung": "×",
    "none": "·",
}
"""Characters of bars by category, so that a bar can be read without colors."""


def fill(style: Style) -> str:
    """Return the character of bars of a category."""
    return _FILLS.get(style, "█")


def bar(parts: Iterable[tuple[float, Style]], cells: int) -> Line:
    """Draw amounts as parts of one bar, rounded so that they add up; parts that are too small are left out.

    Amounts that are not finite are left out.
    """
    amounts = [(amount, style) for amount, style in parts if 0 < amount < math.inf]
    largest = max((amount for amount, _ in amounts), default=1.0)
    amounts = [(amount / largest, style) for amount, style in amounts]  # the sum of some finite ones is infinite
    total = sum(amount for amount, _ in amounts)
    if total <= 0:
        return (StyledText(" " * cells),)
    spans, so_far, drawn = [], 0.0, 0
    for amount, style in amounts:
        so_far += amount
        end = round(cells * so_far / total)
        if end > drawn:
            spans.append(StyledText(fill(style) * (end - drawn), style))
            drawn = end
    return tuple(spans)


def gauge(share: float | None, cells: int, style: Style) -> Line:
    """Draw a share of 1 as a bar that is filled from the left."""
    if share is None:
        return (StyledText(" " * cells),)
    full = round(cells * min(1.0, max(0.0, share)))
    return StyledText("█" * full, style), StyledText("·" * (cells - full), "dim")


def sparkline(points: Sequence[tuple[float, Number]], cells: int) -> str:
    """Draw points, sorted by place, as one row; a column shows the mean of its values, and is empty without any.

    `?` is a column with a value that is not finite.
    """
    columns = min(cells, len(points))
    if columns <= 0:
        return ""
    groups: list[list[Number]] = [[] for _ in range(columns)]
    for place, value in points:
        groups[_scaled(place, (points[0][0], points[-1][0]), columns)].append(value)
    shown = value_range(value for _, value in points)
    return "".join(_level(group, shown.low, shown.high) for group in groups)


def _level(group: Sequence[Number], low: float, high: float) -> str:
    if not group:
        return " "
    known = [value for value in group if value is not None and math.isfinite(value)]
    if len(known) < len(group):
        return "?"
    share = sum(place_in(value, low, high) for value in known) / len(known)
    return _LEVELS[min(len(_LEVELS) - 1, int(share * len(_LEVELS)))]


def curve(
    points: Sequence[tuple[float, Number]], cells: int, rows: int, x: tuple[float, float], y: tuple[float, float]
) -> list[str]:
    """Draw points as a curve of braille dots, connected to their neighbors unless a value is not finite between them.

    Args:
        points: Places on the x axis with values; sorted by place.
        cells: Width in cells, each of which has two columns of dots.
        rows: Height in cells, each of which has four rows of dots.
        x: The first and the last place on the x axis.
        y: The lowest and the highest value.
    """
    grid = [[0] * cells for _ in range(rows)]
    before: tuple[int, int] | None = None
    for place, value in points:
        if value is None or not math.isfinite(value):
            before = None
            continue
        now = _scaled(place, x, 2 * cells), _scaled(value, y, 4 * rows)
        for column, row in _between(before or now, now):
            grid[rows - 1 - row // 4][column // 2] |= _DOTS[column % 2][row % 4]
        before = now
    return ["".join(chr(_BRAILLE + bits) for bits in row) for row in grid]


def _scaled(value: float, limits: tuple[float, float], count: int) -> int:
    return min(count - 1, int(place_in(value, *limits) * count))


def _between(start: tuple[int, int], end: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """Yield the dots of a line from one dot to another."""
    columns, rows = end[0] - start[0], end[1] - start[1]
    count = max(abs(columns), abs(rows), 1)
    for number in range(count + 1):
        yield start[0] + round(columns * number / count), start[1] + round(rows * number / count)


def extremes(points: Sequence[tuple[float, Number]], columns: int) -> Sequence[tuple[float, Number]]:
    """Return points, of many in one column the first, the lowest, the highest and the last, in their order.

    A column without a finite value keeps one that is not, so that no line crosses it.
    """
    if len(points) <= 4 * columns:
        return points
    kept: list[tuple[float, Number]] = []
    edges = [column * len(points) // columns for column in range(columns + 1)]
    for begin, end in itertools.pairwise(edges):
        known = [n for n in range(begin, end) if (value := points[n][1]) is not None and math.isfinite(value)]
        if known:
            low = min(known, key=lambda n: points[n][1] or 0.0)
            high = max(known, key=lambda n: points[n][1] or 0.0)
            kept += (points[n] for n in sorted({known[0], low, high, known[-1]}))
        elif begin < end:
            kept.append(points[begin])
    return kept
