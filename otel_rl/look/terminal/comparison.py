"""A comparison of runs as lines of text, and as Markdown for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, line, safe
from otel_rl.look.insight.compare.texts import method_of, metrics_of, names_of, new_runs, phases_of
from otel_rl.recorder.convert.cells import cell_len, fit, right
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.insight.compare.comparison import Comparison, Side

_LEAST_NAME, _MOST_NAME, _VALUE, _COLUMN, _NUMBERS = 12, 40, 10, 20, 58
"""Cells of a name, of a value, of a run with its difference, and of all columns of numbers."""
_STYLES: dict[str, Style] = {"better": "good", "worse": "bad", "within": "good", "beyond": "bad", "unknown": "warning"}
_SIGNS = {"beyond": "✗", "unknown": "?", "within": "✓"}


def lines(comparison: Comparison, width: int) -> list[Line]:
    """Return a comparison as lines of a terminal: what it says, then the numbers."""
    (head, metrics), (head_of_phases, phases) = metrics_of(comparison), phases_of(comparison)
    row_of = _wide_row if comparison.columns else _row
    longest = max((cell_len(safe(row[0])) for row in (*metrics, *phases)), default=0)
    cells = max(_LEAST_NAME, min(longest, _MOST_NAME, width - _NUMBERS))
    drawn = [
        line((f"base  {safe(names_of(comparison.base))}", "bold")),
        *(line((f"new   {safe(names_of(side))}", "bold")) for side in _sides(comparison)),
        line((f"      {_range(comparison)}", "dim")),
        line(),
        *(
            line((f"{_SIGNS[gate.decision]} ", _STYLES[gate.decision]), safe(gate.sentence))
            for gate in comparison.gates
        ),
        *(line("● ", safe(sentence)) for sentence in comparison.sentences),
        line(),
        row_of(_shown_head(comparison, head), cells, "dim"),
    ]
    ways = [*(metric.way for metric in comparison.metrics), *[""] * len(metrics)]
    for way, row in zip(ways, metrics, strict=False):
        style = "" if comparison.columns else _STYLES.get(way, "dim" if way == "same" else "")
        drawn.append(row_of(row, cells, style))
    if phases:
        drawn += [line(), row_of(_shown_head(comparison, head_of_phases), cells, "dim")]
        drawn += [row_of(phase, cells) for phase in phases]
    if comparison.changes:
        drawn += [line(), line(("CHANGED", "dim")), *(line(f"{safe(change)}") for change in comparison.changes)]
    return [*drawn, line(), *(line((sentence, "dim")) for sentence in method_of(comparison))]


def markdown(comparison: Comparison) -> str:
    """Return a comparison as Markdown: what it says, and tables that are folded."""
    metrics, phases = metrics_of(comparison), phases_of(comparison)
    sides = (comparison.base, *_sides(comparison))
    parts = [
        f"{' → '.join(f'**{_escaped(safe(names_of(side)))}**' for side in sides)}, {_range(comparison)}",
        *(f"- {_SIGNS[gate.decision]} {_escaped(gate.sentence)}" for gate in comparison.gates),
        *(f"- {_escaped(sentence)}" for sentence in comparison.sentences),
        "",
        _table(*metrics),
        _table(*phases),
    ]
    if comparison.changes:
        parts += ["Changed:", *(f"- {_escaped(change)}" for change in comparison.changes), ""]
    return "\n".join([*parts, *method_of(comparison)])


def _range(comparison: Comparison) -> str:
    by = ", aligned by tokens" if comparison.by == "tokens" else ""
    whose = "all" if comparison.columns else "both"
    return f"steps {wording.integer(comparison.first)} to {wording.integer(comparison.last)} of {whose}{by}"


def _sides(comparison: Comparison) -> list[Sequence[Side]]:
    """Return the new side, or each of the runs that are compared with the base."""
    return [[run] for run in new_runs(comparison)] if comparison.columns else [comparison.new]


def _shown_head(comparison: Comparison, head: Sequence[str]) -> list[str]:
    """Return the head of a table; the names of runs are as they are."""
    names = len(head) if not comparison.columns else 2
    return [*(text.upper() for text in head[:names]), *map(safe, head[names:])]


def _row(texts: Sequence[str], cells: int, style: Style = "") -> Line:
    name, base, new, difference = texts
    return (
        StyledText(f"{fit(safe(name), cells)}{right(base, _VALUE)} {right(new, _VALUE)}   "),
        StyledText(difference, style),
    )


def _wide_row(texts: Sequence[str], cells: int, style: Style = "") -> Line:
    """Return a row with a column for each new run."""
    name, base, *runs = texts
    columns = "".join(f"  {right(fit(text, min(cell_len(text), _COLUMN)), _COLUMN)}" for text in runs)
    return (StyledText(f"{fit(safe(name), cells)}{right(base, _VALUE)}{columns}", style),)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    cells = [list(head), ["---", *["---:"] * (len(head) - 1)], *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def _escaped(text: str) -> str:
    """Return a recorded text as one that Markdown shows as it is."""
    return "".join(f"\\{character}" if character in r"\`*_{}[]<>#|!@" else character for character in text)
