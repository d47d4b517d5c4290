"""A comparison of runs as lines of text, and as Markdown for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, line, safe
from otel_rl.look.insight.compare.texts import difference_of, label_of, method_of, names_of, phases_of, values_of
from otel_rl.recorder.convert.cells import cell_len, fit, right
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.insight.compare.comparison import Comparison

_LEAST_NAME, _MOST_NAME, _VALUE, _NUMBERS = 12, 40, 10, 58
"""Cells of a name, of a value, and of all columns of numbers."""
_STYLES: dict[str, Style] = {"better": "good", "worse": "bad", "within": "good", "beyond": "bad", "unknown": "warning"}
_SIGNS = {"beyond": "✗", "unknown": "?", "within": "✓"}


def lines(comparison: Comparison, width: int) -> list[Line]:
    """Return a comparison as lines of a terminal: what it says, then the numbers."""
    rows = [(safe(label_of(metric)), *values_of(metric), difference_of(metric)) for metric in comparison.metrics]
    phases = [(safe(name), *texts) for name, *texts in phases_of(comparison)]
    longest = max((cell_len(row[0]) for row in (*rows, *phases)), default=0)
    cells = max(_LEAST_NAME, min(longest, _MOST_NAME, width - _NUMBERS))
    drawn = [
        line((f"base  {safe(names_of(comparison.base))}", "bold")),
        line((f"new   {safe(names_of(comparison.new))}", "bold")),
        line((f"      {_range(comparison)}", "dim")),
        line(),
        *(
            line((f"{_SIGNS[gate.decision]} ", _STYLES[gate.decision]), safe(gate.sentence))
            for gate in comparison.gates
        ),
        *(line("● ", safe(sentence)) for sentence in comparison.sentences),
        line(),
        _row(("METRIC", "BASE", "NEW", "DIFFERENCE (95 %)"), cells, "dim"),
    ]
    for metric, row in zip(comparison.metrics, rows, strict=True):
        drawn.append(_row(row, cells, _STYLES.get(metric.way, "dim" if metric.way == "same" else "")))
    if phases:
        drawn += [line(), _row(("PHASE", "BASE", "NEW", "DIFFERENCE"), cells, "dim")]
        drawn += [_row(phase, cells) for phase in phases]
    if comparison.changes:
        drawn += [line(), line(("CHANGED", "dim")), *(line(f"{safe(change)}") for change in comparison.changes)]
    return [*drawn, line(), *(line((sentence, "dim")) for sentence in method_of(comparison))]


def markdown(comparison: Comparison) -> str:
    """Return a comparison as Markdown: what it says, and tables that are folded."""
    rows = [(safe(label_of(metric)), *values_of(metric), difference_of(metric)) for metric in comparison.metrics]
    sides = (comparison.base, comparison.new)
    parts = [
        f"{' → '.join(f'**{_escaped(safe(names_of(side)))}**' for side in sides)}, {_range(comparison)}",
        *(f"- {_SIGNS[gate.decision]} {_escaped(gate.sentence)}" for gate in comparison.gates),
        *(f"- {_escaped(sentence)}" for sentence in comparison.sentences),
        "",
        _table(("metric", "base", "new", "difference (95 %)"), rows),
        _table(("phase", "base", "new", "difference"), list(phases_of(comparison))),
    ]
    if comparison.changes:
        parts += ["Changed:", *(f"- {_escaped(change)}" for change in comparison.changes), ""]
    return "\n".join([*parts, *method_of(comparison)])


def _range(comparison: Comparison) -> str:
    by = ", aligned by tokens" if comparison.by == "tokens" else ""
    return f"steps {wording.integer(comparison.first)} to {wording.integer(comparison.last)} of both{by}"


def _row(texts: Sequence[str], cells: int, style: Style = "") -> Line:
    name, base, new, difference = texts
    return (
        StyledText(f"{fit(name, cells)}{right(base, _VALUE)} {right(new, _VALUE)}   "),
        StyledText(difference, style),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    cells = [list(head), ["---", *["---:"] * (len(head) - 1)], *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def _escaped(text: str) -> str:
    """Return a recorded text as one that Markdown shows as it is."""
    return "".join(f"\\{character}" if character in r"\`*_{}[]<>#|!@" else character for character in text)
