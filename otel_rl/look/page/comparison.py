"""A comparison of runs as a page without scripts: what it says, the curves of both sides, and the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.compare.sides import Sides
from otel_rl.look.insight.compare.texts import label_of, method_of, metrics_of, names_of, new_runs, phases_of
from otel_rl.look.page.about import table_of
from otel_rl.look.page.document import still
from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.look.page.verdict import section
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.ranges import value_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.compare.comparison import Comparison
    from otel_rl.look.insight.series import Series
    from otel_rl.look.reader.runs import RunReader

_WIDTH, _HEIGHT, _LEFT = 640, 120, 70
"""The size of a chart, and the room for the numbers of its axis, in units of the drawing."""
_MOST_POINTS = 300
_COLORS = 8
_SIGNS = {"beyond": "✗", "unknown": "?", "within": "✓"}


def comparison_page(comparison: Comparison, base: Sequence[RunReader], new: Sequence[RunReader]) -> str:
    """Return the page of a comparison of runs."""
    sides = Sides(base, new, by_tokens=comparison.by == "tokens")
    gates = [tag("li", f"{_SIGNS[gate.decision]} {gate.sentence}", class_="finding-line") for gate in comparison.gates]
    sentences = [tag("li", sentence, class_="finding-line") for sentence in comparison.sentences]
    named = [*(("base", run) for run in comparison.base), *(("new", run) for run in new_runs(comparison))]
    keys = [
        tag("p", tag("i", "", class_=f"key {_color(n)}"), f" {side}: {names_of([run])}")
        for n, (side, run) in enumerate(named)
    ]
    curves = [_chart(label_of(metric), sides, metric.metric) for metric in comparison.metrics]
    (head, metrics), (head_of_phases, phases) = metrics_of(comparison), phases_of(comparison)
    changes = [tag("li", change) for change in comparison.changes]
    body = joined(
        tag("header", tag("div", tag("h1", "Comparison of runs"), *keys, class_="title")),
        tag(
            "main",
            section("verdict", "Verdict", tag("ul", *gates, *sentences, class_="findings")),
            section(
                "curves",
                "All runs" if comparison.columns else "Both sides",
                tag("div", *curves, class_="multiples wide"),
            ),
            section("metrics", "Metrics", table_of(head, metrics, "Metrics", numbers=(1, 2))),
            section("phases", "Phases", table_of(head_of_phases, phases, "Phases", numbers=(1, 2, 3))),
            section("changed", "Changed", tag("ul", *changes) if changes else tag("p", "Nothing.", class_="note")),
        ),
        tag("footer", *(tag("p", sentence) for sentence in method_of(comparison))),
    )
    return still("Comparison of runs · otel-rl", body)


def _chart(title: str, sides: Sides, metric: str) -> Markup:
    """Return the values of a metric by step, a line for each run."""
    _, base, new = sides.metric(metric)
    lines = [(curve.finite, _color(n)) for n, curve in enumerate([*base, *new]) if curve.finite]
    if not lines:
        return joined()
    steps, values = (np.concatenate([getattr(curve, part) for curve, _ in lines]) for part in ("steps", "values"))
    low, high, _ = value_range(values.tolist())
    first, last = int(steps.min()), int(steps.max())
    drawn = [tag("polyline", points=_points(curve, (first, last), (low, high)), class_=color) for curve, color in lines]
    bottom = str(_HEIGHT - 20)
    axis = [
        tag("line", x1=str(_LEFT), x2=str(_WIDTH), y1=bottom, y2=bottom),
        tag("text", wording.number(high), x="0", y="12"),
        tag("text", wording.number(low), x="0", y=bottom),
        tag("text", wording.integer(first), x=str(_LEFT), y=str(_HEIGHT - 4)),
        tag("text", wording.integer(last), x=str(_WIDTH), y=str(_HEIGHT - 4), text_anchor="end"),
    ]
    size = f"0 0 {_WIDTH} {_HEIGHT}"
    chart = tag("svg", *axis, *drawn, viewBox=size, class_="pair", role="img", aria_label=f"{title} by step")
    return tag("figure", tag("figcaption", tag("span", title, class_="metric")), chart)


def _color(run: int) -> str:
    """Return the class of the color of a run, given its place among all."""
    return f"line-{run % _COLORS + 1}"


def _points(series: Series, steps: tuple[int, int], values: tuple[float, float]) -> str:
    """Return a line through the means of neighboring steps."""
    parts = min(len(series.steps), _MOST_POINTS)
    at = [float(block.mean()) for block in np.array_split(series.steps, parts)]
    means = [float(block.mean()) for block in np.array_split(series.values, parts)]
    wide, tall = max(1, steps[1] - steps[0]), (values[1] - values[0]) or 1.0
    places = (
        (
            _LEFT + (_WIDTH - _LEFT) * (x - steps[0]) / wide,
            4 + (_HEIGHT - 26) * min(1.0, max(0.0, (values[1] - y) / tall)),
        )
        for x, y in zip(at, means, strict=True)
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
