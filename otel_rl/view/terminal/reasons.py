"""Why steps took their time, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from otel_rl.insight import wording
from otel_rl.insight.why.sentences import name_of
from otel_rl.view.terminal.lines import Span, fit, line, right, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.insight.why.answer import Part, Why
    from otel_rl.view.terminal.lines import Line, Style

_LEAST_NAME, _MOST_NAME, _NUMBER = 12, 40, 10
_MOST_PARTS = 12
_LEAST = 1e-3
"""The smallest part that has a line, as a fraction of the wall time."""
_SOURCE = "The critical path: from the end of the step, always what ended last before. Its parts add up to the time."


def lines(why: Why, width: int) -> list[Line]:
    """Return the answer as lines of a terminal: sentences, then the parts."""
    shown = [one for one in why.parts if max(one.seconds, abs(one.change_seconds)) >= _LEAST * why.seconds]
    shown, rest = shown[:_MOST_PARTS], shown[_MOST_PARTS:]
    names = [f"{name_of(one.kind, safe(one.name))}{' ~' if one.is_inferred else ''}" for one in shown]
    longest = max((cell_len(one) for one in names), default=0)
    cells = max(_LEAST_NAME, min(longest, _MOST_NAME, width - 4 * _NUMBER - 24)) + 2
    head, *sentences = why.sentences
    found = [line((safe(head), "bold")), *(line("● ", safe(one)) for one in sentences)]
    found += [line(("! ", "warning"), safe(one)) for one in why.notes]
    found += [line(), _row(("PART OF THE PATH", "TIME", "USUAL", "CHANGE", "WITHOUT", "WHO"), cells, "dim")]
    found += [_row(_cells(name, one, why), cells, _style(one, why)) for name, one in zip(names, shown, strict=True)]
    if rest:
        found.append(line((f"… {wording.count(len(rest), 'smaller part')}", "dim")))
    found += [line(), line((_SOURCE, "dim"))]
    if any(one.is_inferred for one in shown):
        found.append(line(("~ What it waited for was not recorded, but inferred from times.", "dim")))
    return found


def _cells(name: str, part: Part, why: Why) -> tuple[str, ...]:
    usual = "" if part.usual_seconds is None else wording.seconds(part.usual_seconds)
    change = "" if part.usual_seconds is None else _signed(part.change_seconds)
    without = "" if part.saves_seconds is None else wording.seconds(why.seconds - part.saves_seconds)
    return name, wording.seconds(part.seconds), usual, change, without, safe(wording.names(part.who, 2))


def _row(texts: Sequence[str], cells: int, style: Style = "") -> Line:
    name, *numbers, who = texts
    taken, usual, change, without = (right(one, _NUMBER) for one in numbers)
    return (Span(f"{fit(name, cells)}{taken}{usual}"), Span(change, style), Span(f"{without}   {who}"))


def _style(part: Part, why: Why) -> Style:
    if part.usual_seconds is None or abs(part.change_seconds) < 0.01 * why.seconds:
        return ""
    return "bad" if part.change_seconds > 0 else "good"


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else ''}{wording.seconds(seconds)}"
