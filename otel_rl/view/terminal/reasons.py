"""Why steps took their time, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from otel_rl.insight import wording
from otel_rl.insight.why.sentences import name_of
from otel_rl.insight.why.texts import numbers_of, shown_parts
from otel_rl.view.terminal.lines import Span, fit, line, right, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.insight.why.answer import Part, Why
    from otel_rl.view.terminal.lines import Line, Style

_LEAST_NAME, _MOST_NAME, _NUMBER, _LEAST_WHO = 18, 40, 12, 12
_NUMBERS = ("TIME", "USUAL", "CHANGE", "WITHOUT")
_CHANGE = _NUMBERS.index("CHANGE")
_MOST_PARTS = 12
_SOURCE = "The critical path: from the end of the step, always what ended last before. Its parts add up to the time."


def lines(why: Why, width: int) -> list[Line]:
    """Return the answer as lines of a terminal: sentences, then the parts."""
    parts = shown_parts(why)
    shown, rest = parts[:_MOST_PARTS], parts[_MOST_PARTS:]
    names = [f"{name_of(one.kind, safe(one.name))}{' ~' if one.is_inferred else ''}" for one in shown]
    longest = max((cell_len(one) for one in names), default=0)
    are_compared = why.usual_seconds is not None
    numbers = _NUMBERS if are_compared else _NUMBERS[:1]
    cells = max(_LEAST_NAME, min(longest + 2, _MOST_NAME, width - len(numbers) * _NUMBER - _LEAST_WHO))
    head, *sentences = why.sentences
    found = [line((safe(head), "bold")), *(line("● ", safe(one)) for one in sentences)]
    found += [line(("! ", "warning"), safe(one)) for one in why.notes]
    found += [line(), _row(("PART OF THE PATH", *numbers, "WHO"), cells, "dim")]
    for name, one in zip(names, shown, strict=True):
        texts = numbers_of(one, why)[: len(numbers)]
        found.append(_row((name, *texts, safe(wording.names(one.who, 2))), cells, _style(one, why)))
    if rest:
        found.append(line((f"… {wording.count(len(rest), 'smaller part')}", "dim")))
    found += [line(), line((_SOURCE, "dim"))]
    if any(one.is_inferred for one in shown):
        found.append(line(("~ What it waited for was not recorded, but inferred from times.", "dim")))
    return found


def _row(texts: Sequence[str], cells: int, style: Style = "") -> Line:
    name, *numbers, who = texts
    spans = [Span(right(one, _NUMBER), style if n == _CHANGE else "") for n, one in enumerate(numbers)]
    return (Span(fit(name, cells)), *spans, Span(f"   {who}"))


def _style(part: Part, why: Why) -> Style:
    if part.usual_seconds is None or abs(part.change_seconds) < 0.01 * why.seconds:
        return ""
    return "bad" if part.change_seconds > 0 else "good"
