"""Why a run is slow, stuck or dead, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, line, safe
from otel_rl.look.insight.span_work import name_of
from otel_rl.look.insight.why.sentences import numbers_of, shown_parts
from otel_rl.look.terminal import debts
from otel_rl.look.terminal.headline import lines_of
from otel_rl.recorder.archive.autopsy_text import verdict_lines
from otel_rl.recorder.convert.cells import cell_len, fit, right
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.insight.why.answer import ExplainedSteps, PathPart, Why

_WHOLE = 1 << 30
"""Cells of a line that is not folded here."""
_LEAST_NAME, _MOST_NAME, _NUMBER, _LEAST_WHO = 18, 40, 12, 12
_NUMBERS = ("TIME", "USUAL", "CHANGE", "WITHOUT")
_CHANGE = _NUMBERS.index("CHANGE")
_MOST_PARTS = 12
_SOURCE = "The critical path: from the end of the step, always what ended last before. Its parts add up to the time."


def lines(why: Why, width: int) -> list[Line]:
    """Return the answer as lines of a terminal: sentences with what to do, then what they rest on."""
    blocks = [[row for finding in why.findings for row in lines_of(finding, finding.advice, _WHOLE, is_apart=True)]]
    if why.owed is not None and why.owed.waits:
        blocks.append(debts.lines(why.owed, width))
    if why.autopsy is not None:
        blocks.append([line((safe(text), style)) for style, text in verdict_lines(why.autopsy)])
    if why.steps is not None:
        blocks.append(_of_steps(why.steps, width))
    blocks.append([line(("→ ", "note"), safe(advice)) for advice in why.advice])
    return [row for block in blocks if block for row in (*block, line())][:-1]


def _of_steps(explained: ExplainedSteps, width: int) -> list[Line]:
    """Return why steps took their time: sentences, then the parts of their path."""
    parts = shown_parts(explained)
    shown, rest = parts[:_MOST_PARTS], parts[_MOST_PARTS:]
    names = [f"{name_of(part.kind, safe(part.name))}{' ~' if part.is_inferred else ''}" for part in shown]
    longest = max((cell_len(name) for name in names), default=0)
    are_compared = explained.usual_seconds is not None
    numbers = _NUMBERS if are_compared else _NUMBERS[:1]
    cells = max(_LEAST_NAME, min(longest + 2, _MOST_NAME, width - len(numbers) * _NUMBER - _LEAST_WHO))
    head, *sentences = explained.sentences
    drawn = [line((safe(head), "bold")), *(line("● ", safe(sentence)) for sentence in sentences)]
    drawn += [line(("! ", "warning"), safe(note)) for note in explained.notes]
    drawn += [line(), _row(("PART OF THE PATH", *numbers, "WHO"), cells, "dim")]
    for name, part in zip(names, shown, strict=True):
        texts = numbers_of(part, explained)[: len(numbers)]
        drawn.append(_row((name, *texts, safe(wording.names(part.who, 2))), cells, _style(part, explained)))
    if rest:
        drawn.append(line((f"… {wording.count(len(rest), 'smaller part')}", "dim")))
    drawn += [line(), line((_SOURCE, "dim"))]
    if any(part.is_inferred for part in shown):
        drawn.append(line(("~ What it waited for was not recorded, but inferred from times.", "dim")))
    return drawn


def _row(texts: Sequence[str], cells: int, style: Style = "") -> Line:
    name, *numbers, who = texts
    spans = [StyledText(right(text, _NUMBER), style if n == _CHANGE else "") for n, text in enumerate(numbers)]
    return (StyledText(fit(name, cells)), *spans, StyledText(f"   {who}"))


def _style(part: PathPart, explained: ExplainedSteps) -> Style:
    if part.usual_seconds is None or abs(part.change_seconds) < 0.01 * explained.seconds:
        return ""
    return "bad" if part.change_seconds > 0 else "good"
