"""A comparison of runs as lines of text, and as Markdown for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from otel_rl.insight import wording
from otel_rl.insight.compare.texts import difference_of, label_of, method_of, names_of, phases_of, values_of
from otel_rl.view.terminal.lines import Span, fit, line, right, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.insight.compare.comparison import Comparison
    from otel_rl.view.terminal.lines import Line, Style

_LEAST_NAME, _MOST_NAME, _VALUE, _NUMBERS = 12, 40, 10, 58
"""Cells of a name, of a value, and of all columns of numbers."""
_STYLES: dict[str, Style] = {"better": "good", "worse": "bad", "within": "good", "beyond": "bad", "unknown": "warning"}
_SIGNS = {"beyond": "✗", "unknown": "?", "within": "✓"}


def lines(comparison: Comparison, width: int) -> list[Line]:
    """Return a comparison as lines of a terminal: what it says, then the numbers."""
    rows = [(safe(label_of(one)), *values_of(one), difference_of(one)) for one in comparison.metrics]
    phases = [(safe(name), *texts) for name, *texts in phases_of(comparison)]
    longest = max((cell_len(one[0]) for one in (*rows, *phases)), default=0)
    cells = max(_LEAST_NAME, min(longest, _MOST_NAME, width - _NUMBERS))
    found = [
        line((f"base  {safe(names_of(comparison.base))}", "bold")),
        line((f"new   {safe(names_of(comparison.new))}", "bold")),
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
    return [*found, line(), *(line((one, "dim")) for one in method_of(comparison))]


def markdown(comparison: Comparison) -> str:
    """Return a comparison as Markdown: what it says, and tables that are folded."""
    rows = [(safe(label_of(one)), *values_of(one), difference_of(one)) for one in comparison.metrics]
    sides = (comparison.base, comparison.new)
    parts = [
        f"{' → '.join(f'**{_escaped(safe(names_of(side)))}**' for side in sides)}, {_range(comparison)}",
        *(f"- {_SIGNS[one.decision]} {_escaped(one.sentence)}" for one in comparison.gates),
        *(f"- {_escaped(one)}" for one in comparison.sentences),
        "",
        _table(("metric", "base", "new", "difference (95 %)"), rows),
        _table(("phase", "base", "new", "difference"), list(phases_of(comparison))),
    ]
    if comparison.changes:
        parts += ["Changed:", *(f"- {_escaped(one)}" for one in comparison.changes), ""]
    return "\n".join([*parts, *method_of(comparison)])


def _range(comparison: Comparison) -> str:
    by = ", aligned by tokens" if comparison.by == "tokens" else ""
    return f"steps {wording.integer(comparison.first)} to {wording.integer(comparison.last)} of both{by}"


def _row(texts: Sequence[str], cells: int, style: Style = "") -> Line:
    name, base, new, difference = texts
    return (Span(f"{fit(name, cells)}{right(base, _VALUE)} {right(new, _VALUE)}   "), Span(difference, style))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    cells = [list(head), ["---", *["---:"] * (len(head) - 1)], *([_escaped(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def _escaped(text: str) -> str:
    """Return a recorded text as one that Markdown shows as it is."""
    return "".join(f"\\{one}" if one in r"\`*_{}[]<>#|!@" else one for one in text)
