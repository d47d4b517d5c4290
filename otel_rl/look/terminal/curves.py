"""Curves of metrics: in one row each, or larger where there is room."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, both_ends, fit_line, line, safe
from otel_rl.look.terminal import drawing, words
from otel_rl.recorder.convert.cells import fit, right
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.ranges import value_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.cli.lines import Line
    from otel_rl.look.terminal.phases import Points
    from otel_rl.look.terminal.scene import Scene

HIGH = 16
"""Lines of a metric at the most."""
_LARGE = 3
"""Lines that a metric needs for a curve of dots below its name."""
_NARROW = 50
"""Cells below which a curve does not say its steps."""


def names_of(scene: Scene) -> list[str]:
    """Return the names of the metrics to show: the main ones, or those that match."""
    main = [curve.name for curve in scene.present.progress.curves]
    if not scene.pattern:
        return main
    every = dict.fromkeys((*main, *scene.names))
    return [name for name in every if scene.matches(name)] or main


def points_of(scene: Scene, name: str) -> Points:
    """Return the points of a metric: all of them once they are read, and those that came since."""
    recent: Points = next((list(curve.points) for curve in scene.present.progress.curves if curve.name == name), [])
    whole = scene.curves.get(name, [])
    return [*whole, *(point for point in recent if not whole or point[0] > whole[-1][0])]


def head_of(scene: Scene, names: Sequence[str], cells: int) -> list[str]:
    """Return what is written above curves that are too narrow to say their steps."""
    steps = [step for name in names for step, _ in points_of(scene, name)] if cells < _NARROW else []
    return [_steps_text(scene, min(steps), max(steps))] if steps else []


def _steps_text(scene: Scene, first: float, last: float) -> str:
    resumed = [f"{step:,}" for step in scene.present.progress.resumed_at if first < step <= last]
    text = f"steps {wording.fixed(first, 0)} to {wording.fixed(last, 0)}"
    return f"{text}, resumed at {wording.names(resumed, 2)}" if resumed else text


def _value_at(scene: Scene, name: str, points: Points) -> float | None:
    if scene.step is not None:
        return next((value for step, value in reversed(points) if step <= scene.step), None)
    return points[-1][1]


def _small(scene: Scene, name: str, cells: int) -> Line:
    """Draw a metric in one row: name, curve, last value."""
    points = points_of(scene, name)
    of_name = min(18, cells // 3)
    if not points:
        return fit_line((StyledText(f" {fit(safe(name), of_name)}"), StyledText(" reading …", "dim")), cells)
    of_curve = cells - of_name - 12
    text = drawing.sparkline(points, of_curve)
    value = words.number(_value_at(scene, name, points))
    return (
        StyledText(f" {fit(words.tail(name, of_name), of_name)} "),
        StyledText(fit(text, of_curve), "first"),
        StyledText(right(value, 9), "bold"),
    )


def curves(scene: Scene, names: Sequence[str], cells: int, height: int, slots: int = 0) -> list[Line]:
    """Draw metrics below each other, the first ones large if there is no room for all to be.

    Args:
        scene: The run.
        names: Names of metrics.
        cells: The width.
        height: The height.
        slots: The number of metrics that the height is shared by; by default that of these.
    """
    slots = slots or len(names)
    if not slots:
        return [line((" no metric has been recorded", "dim"))]
    each, left = divmod(height, slots)
    if each >= HIGH:
        each, left = HIGH, 0
    elif each < _LARGE:
        each, left = 1, 0 if height <= slots else (height - slots) // (_LARGE - 1)
    drawn: list[Line] = []
    for number, name in enumerate(names[:height]):
        rows = each + (number < left) * (_LARGE - 1 if each == 1 else 1)
        drawn += [_small(scene, name, cells)] if rows == 1 else _curve(scene, name, cells, rows - 1)
    return drawn


def _curve(scene: Scene, name: str, cells: int, rows: int) -> list[Line]:
    points = points_of(scene, name)
    known = [value for _, value in points if value is not None]
    if not points:
        return [line(f" {safe(name)}", (" reading …", "dim")), *[line()] * rows]
    shown = value_range(known)
    first, last = points[0][0], points[-1][0]
    above = "↑" if known and max(known) > shown.high else ""
    below = "↓" if known and min(known) < shown.low else ""
    top, bottom = right(words.number(shown.high) + above, 9), right(words.number(shown.low) + below, 9)
    axis = [top, *[" " * 9] * (rows - 2), *([bottom] if rows > 1 else [])]
    of_curve = cells - 11
    thin, limits = drawing.extremes(points, of_curve), (shown.low, shown.high)
    if shown.is_log:
        thin = [(step, value and math.log10(value)) for step, value in thin]
        limits = math.log10(shown.low), math.log10(shown.high)
    drawn = drawing.curve(thin, of_curve, rows, (first, last), limits)
    if scene.step is not None and first <= scene.step <= last and last > first:
        column = min(of_curve - 1, int((scene.step - first) / (last - first) * of_curve))
        drawn = [f"{row[:column]}│{row[column + 1 :]}" for row in drawn]
    value = StyledText(words.number(_value_at(scene, name, points)), "bold")
    if cells < _NARROW:
        head = both_ends((StyledText(f" {words.tail(name, cells - 12)}"),), (value,), cells)
    else:
        notes = [_steps_text(scene, first, last)]
        notes += ["logarithmic"] if shown.is_log else []
        notes += [f"up to {words.number(max(known))}"] if above else []
        notes += [f"down to {words.number(min(known))}"] if below else []
        head = both_ends((StyledText(f" {safe(name)}  "), value), (StyledText(f"{', '.join(notes)} ", "dim"),), cells)
    return [
        head,
        *(
            (StyledText(of_axis + " ", "dim"), StyledText(row, "first"))
            for of_axis, row in zip(axis, drawn, strict=True)
        ),
    ]
