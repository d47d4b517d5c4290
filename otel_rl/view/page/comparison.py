"""A comparison of runs as a page without scripts: what it says, the curves of both sides, and the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl.insight import wording
from otel_rl.insight.compare.sides import Sides
from otel_rl.insight.compare.texts import difference_of, label_of, method_of, names_of, phases_of, values_of
from otel_rl.view.page.about import table_of
from otel_rl.view.page.document import still
from otel_rl.view.page.markup import Markup, joined, tag
from otel_rl.view.page.verdict import section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.reader import RunReader
    from otel_rl.insight.compare.comparison import Comparison
    from otel_rl.insight.series import Series

_WIDTH, _HEIGHT, _LEFT = 640, 120, 70
"""The size of a chart, and the room for the numbers of its axis, in units of the drawing."""
_MOST_POINTS = 300
_METRICS = ("metric", "base", "new", "difference (95 %)")
_PHASES = ("phase", "base", "new", "difference")
_SIGNS = {"beyond": "✗", "unknown": "?", "within": "✓"}


def comparison_page(comparison: Comparison, base: Sequence[RunReader], new: Sequence[RunReader]) -> str:
    """Return the page of a comparison of runs."""
    sides = Sides(base, new, by_tokens=comparison.by == "tokens")
    gates = [tag("li", f"{_SIGNS[one.decision]} {one.sentence}", class_="finding-line") for one in comparison.gates]
    told = [tag("li", one, class_="finding-line") for one in comparison.sentences]
    names = [(f"base: {names_of(comparison.base)}", ""), (f"new: {names_of(comparison.new)}", "new")]
    keys = [tag("p", tag("i", "", class_=f"key {kind}".strip()), " ", name) for name, kind in names]
    curves = [_chart(label_of(one), sides, one.metric) for one in comparison.metrics]
    metrics = [(label_of(one), *values_of(one), difference_of(one)) for one in comparison.metrics]
    changes = [tag("li", one) for one in comparison.changes]
    body = joined(
        tag("header", tag("div", tag("h1", "Comparison of runs"), *keys, class_="title")),
        tag(
            "main",
            section("verdict", "Verdict", tag("ul", *gates, *told, class_="findings")),
            section("curves", "Both sides", tag("div", *curves, class_="multiples wide")),
            section("metrics", "Metrics", table_of(_METRICS, metrics, "Metrics", numbers=(1, 2))),
            section("phases", "Phases", table_of(_PHASES, [*phases_of(comparison)], "Phases", numbers=(1, 2, 3))),
            section("changed", "Changed", tag("ul", *changes) if changes else tag("p", "Nothing.", class_="note")),
        ),
        tag("footer", *(tag("p", one) for one in method_of(comparison))),
    )
    return still("Comparison of runs · otel-rl", body)


def _chart(title: str, sides: Sides, metric: str) -> Markup:
    """Return the values of a metric by step, a line for each run."""
    _, base, new = sides.metric(metric)
    lines = [(one.finite, kind) for those, kind in ((base, ""), (new, "new")) for one in those if one.finite]
    if not lines:
        return joined()
    steps, values = (np.concatenate([getattr(one, part) for one, _ in lines]) for part in ("steps", "values"))
    low, high = float(values.min()), float(values.max())
    first, last = int(steps.min()), int(steps.max())
    drawn = [
        tag("polyline", points=_points(one, (first, last), (low, high)), class_=kind or None) for one, kind in lines
    ]
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


def _points(series: Series, steps: tuple[int, int], values: tuple[float, float]) -> str:
    """Return a line through the means of neighboring steps."""
    parts = min(len(series.steps), _MOST_POINTS)
    at = [float(one.mean()) for one in np.array_split(series.steps, parts)]
    means = [float(one.mean()) for one in np.array_split(series.values, parts)]
    wide, tall = max(1, steps[1] - steps[0]), (values[1] - values[0]) or 1.0
    places = (
        (_LEFT + (_WIDTH - _LEFT) * (x - steps[0]) / wide, 4 + (_HEIGHT - 26) * (values[1] - y) / tall)
        for x, y in zip(at, means, strict=True)
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
