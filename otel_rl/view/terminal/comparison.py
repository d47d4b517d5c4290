"""A comparison of runs as lines of text, and as Markdown for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from otel_rl.insight import wording
from otel_rl.view.terminal.lines import Span, fit, line, right, safe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.insight.compare.comparison import Comparison, MetricDifference, Side
    from otel_rl.view.terminal.lines import Line, Style

_LEAST_NAME, _MOST_NAME, _VALUE, _NUMBERS = 12, 40, 10, 58
"""Cells of a name, of a value, and of all columns of numbers."""
_MOST_PHASES = 8
_LEAST_OF_PHASES = 1e-3
_STYLES: dict[str, Style] = {"better": "good", "worse": "bad", "within": "good", "beyond": "bad", "unknown": "warning"}
_SIGNS = {"beyond": "✗", "unknown": "?", "within": "✓"}
_METHODS = {
    "steps": "means over steps",
    "pairs": "differences at equal steps, where both runs follow one course",
    "runs": "means of runs",
}
_SOURCE = "Intervals allow for steps that depend on each other (equally weighted cosines)."


def lines(comparison: Comparison, width: int) -> list[Line]:
    """Return a comparison as lines of a terminal: what it says, then the numbers."""
    rows = [(_label(one), *_values(one), _difference(one)) for one in comparison.metrics]
    phases = list(_phases(comparison))
    longest = max((cell_len(one[0]) for one in (*rows, *phases)), default=0)
    cells = max(_LEAST_NAME, min(longest, _MOST_NAME, width - _NUMBERS))
    found = [
        line((f"base  {_names(comparison.base)}", "bold")),
        line((f"new   {_names(comparison.new)}", "bold")),
        line((f"      {_range(comparison)}", "dim")),
        line(),
        *(line((f"{_SIGNS[one.decision]} ", _STYLES[one.decision]), safe(one.sentence)) for one in comparison.gates),
        *(line("● ", safe(one)) for one in comparison.sentences),
        line(),
        _row(("METRIC", "BASE", "NEW", "DIFFERENCE (95 %)"), cells, "dim"),
    ]
    for one, row in zip(comparison.metrics, rows, strict=True):
        found.append(_row(row, cells, _STYLES.get(one.way, "dim" if one.way == "same" else "")))
    if phases:
        found += [line(), _row(("PHASE", "BASE", "NEW", "DIFFERENCE"), cells, "dim")]
        found += [_row(one, cells) for one in phases]
    if comparison.changes:
        found += [line(), line(("CHANGED", "dim")), *(line(f"{safe(one)}") for one in comparison.changes)]
    return [*found, line(), *(line((one, "dim")) for one in _method(comparison))]


def markdown(comparison: Comparison) -> str:
    """Return a comparison as Markdown: what it says, and tables that are folded."""
    rows = [(_label(one), *_values(one), _difference(one)) for one in comparison.metrics]
    parts = [
        f"**{_escaped(_names(comparison.base))}** → **{_escaped(_names(comparison.new))}**, {_range(comparison)}",
        *(f"- {_SIGNS[one.decision]} {_escaped(one.sentence)}" for one in comparison.gates),
        *(f"- {_escaped(one)}" for one in comparison.sentences),
        "",
        _table(("metric", "base", "new", "difference (95 %)"), rows),
        _table(("phase", "base", "new", "difference"), list(_phases(comparison))),
    ]
    if comparison.changes:
        parts += ["Changed:", *(f"- {_escaped(one)}" for one in comparison.changes), ""]
    return "\n".join([*parts, *_method(comparison)])


def _names(side: Sequence[Side]) -> str:
    return " + ".join(f"{safe(one.path)} ({safe(one.name)}, {wording.count(one.steps, 'step')})" for one in side)


def _range(comparison: Comparison) -> str:
    by = ", aligned by tokens" if comparison.by == "tokens" else ""
    return f"steps {wording.integer(comparison.first)} to {wording.integer(comparison.last)} of both{by}"


def _row(texts: Sequence[str], cells: int, style: Style = "") -> Line:
    name, base, new, difference = texts
    return (Span(f"{fit(name, cells)}{right(base, _VALUE)} {right(new, _VALUE)}   "), Span(difference, style))


def _label(one: MetricDifference) -> str:
    return safe(one.name if one.name == one.metric else f"{one.metric} · {one.name}")


def _values(one: MetricDifference) -> tuple[str, str]:
    show = {"step_time": wording.seconds, "memory_peak": wording.memory}.get(one.metric, wording.number)
    return show(one.base), show(one.new)


def _difference(one: MetricDifference) -> str:
    if one.low is None or one.high is None:
        return f"unknown: {wording.count(int(one.independent), 'independent step')}"
    scale, unit = (100, " %") if one.is_relative else (1, "")
    show = (lambda value: f"{value:+.1f}") if one.is_relative else _signed
    middle, low, high = (show(value * scale) for value in (one.difference, one.low, one.high))
    return f"{middle}{unit} ({low} to {high})"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{wording.number(value)}"


def _phases(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    for one in comparison.phases[:_MOST_PHASES]:
        gap = one.new - one.base
        near = abs(gap) < _LEAST_OF_PHASES * max(one.base, one.new)
        shown = "" if near else f"{'+' if gap > 0 else ''}{wording.seconds(gap)}"
        yield safe(one.phase), wording.seconds(one.base), wording.seconds(one.new), shown


def _method(comparison: Comparison) -> list[str]:
    methods = dict.fromkeys(_METHODS[one.method] for one in comparison.metrics)
    return [f"Compared: {'; '.join(methods)}.", _SOURCE] if methods else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    cells = [list(head), ["---", *["---:"] * (len(head) - 1)], *([_escaped(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def _escaped(text: str) -> str:
    """Return a recorded text as one that Markdown shows as it is."""
    return "".join(f"\\{one}" if one in r"\`*_{}[]<>#|!@" else one for one in text)
