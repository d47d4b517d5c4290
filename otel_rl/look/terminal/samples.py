"""Samples as lines of text: what the policy wrote, turn by turn, and what it got for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.cli.lines import line, safe
from otel_rl.look.insight.samples.sample import gap_of
from otel_rl.recorder.convert.cells import cell_len, fit
from otel_rl.recorder.convert.wrapping import wrapped
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.insight.samples.sample import Pair, Samples, SampleTurn, TextSample

_LABEL = 14
_LINES_OF_PROMPT, _LINES_OF_ANSWER = 4, 12
_FIRST_TURNS, _LAST_TURNS = 4, 6
"""Turns that are shown of a long trajectory."""
_NO_LIMIT = 1 << 60
_MOST_COMPONENTS = 6
_OF_TRACE = 12
"""Digits of a trace id: enough to find one of millions of trajectories."""


def lines(samples: Samples, width: int, *, whole: bool = False) -> list[Line]:
    """Return samples as lines of a terminal; if `whole` is true, long texts are not cut."""
    first, last = (wording.integer(step) for step in samples.steps)
    shown = len(samples.samples)
    searched = f"{wording.count(samples.searched, 'sample')} of steps {first} to {last} searched"
    head = f"{searched}; {shown} of {samples.found:,} shown"
    rows = [line((head, "bold"))]
    for sentence in samples.sentences:
        rows += _text("! ", sentence, width, _NO_LIMIT, label_cells=2)
    for pair in samples.samples:
        rows += [line(), *_of_pair(pair, samples, width, whole=whole)]
    return rows


def _of_pair(pair: Pair, samples: Samples, width: int, *, whole: bool) -> Iterator[Line]:
    yield from _of_sample(pair.sample, width, whole=whole)
    if pair.other is not None:
        yield from _of_sample(pair.other, width, whole=whole, asked=False)
    elif samples.other_step is not None:
        yield line((f"step {wording.integer(samples.other_step)} has no completion of this prompt", "dim"))


def _of_sample(sample: TextSample, width: int, *, whole: bool, asked: bool = True) -> Iterator[Line]:
    """Yield the facts of a sample and its turns; those before the policy's first one only if `asked` is true."""
    yield from _flow(_head(sample), width, "title")
    yield from _flow(_facts(sample), width, "dim")
    turns = sample.conversation
    answer = next((n for n, turn in enumerate(turns) if turn.author in ("assistant", "completion")), len(turns))
    for n, turn in enumerate(turns):
        if n < answer and not (asked and turn.text):
            continue
        if not whole and _FIRST_TURNS <= n < len(turns) - _LAST_TURNS:
            if n == _FIRST_TURNS:
                more = wording.count(len(turns) - _LAST_TURNS - n, "more turn")
                yield line(" " * _LABEL, (f"… {more} (--full shows all)", "dim"))
            continue
        most = _NO_LIMIT if whole else _LINES_OF_PROMPT if n < answer else _LINES_OF_ANSWER
        yield from _of_turn(turn, width, most)


def _head(sample: TextSample) -> Iterator[str]:
    yield f"step {wording.integer(sample.step)}"
    if sample.group_id or sample.group >= 0:
        yield f"group {safe(sample.group_id) or sample.group}"
    yield f"#{sample.number}"
    numbers = [f"{safe(name)} {wording.number(value)}" for name, value in sample.components.items()]
    more = f" ({', '.join(numbers[:_MOST_COMPONENTS])})" if numbers else ""
    if sample.reward is not None or more:
        yield f"reward {'unknown' if sample.reward is None else wording.number(sample.reward)}{more}"
    if sample.advantage is not None:
        yield f"advantage {wording.number(sample.advantage)}"
    yield wording.count(len(sample.completion), "character")


def _facts(sample: TextSample) -> Iterator[str]:
    if sample.trace_id:
        yield f"trajectory {safe(sample.trace_id[:_OF_TRACE])}"
    if sample.policy_version >= 0:
        late = "" if sample.staleness is None else f", staleness {sample.staleness}"
        yield f"version {sample.policy_version}{late}"
    if sample.outcome not in ("", "trained"):
        yield f"dropped: {safe(sample.outcome)}"
    if sample.gap is not None:
        yield f"gap of engine and trainer {wording.number(sample.gap)}"
    if sample.loss is not None:
        yield f"loss {wording.number(sample.loss)}"
    if sample.prompt_id:
        yield f"prompt {safe(sample.prompt_id)}"
    if sample.row:
        yield f"row {safe(sample.row)}"
    yield from (f"{safe(part)} {wording.seconds(took)}" for part, took in sample.seconds.items())


def _flow(parts: Iterator[str], width: int, style: Style) -> Iterator[Line]:
    """Yield parts in as many lines as they need; a line ends between two parts if it can."""
    room, rows = max(20, width - 2), [""]
    for part in parts:
        joined = f"{rows[-1]} · {part}" if rows[-1] else part
        rows[-1:] = [joined] if cell_len(joined) <= room else [rows[-1], *wrapped(part, room, _NO_LIMIT)[0]]
    for n, row in enumerate(filter(None, rows)):
        yield line((f"  {row}" if n or style == "dim" else row, style))


def _of_turn(turn: SampleTurn, width: int, most: int) -> Iterator[Line]:
    label = safe(f"  {turn.author} {turn.name}".rstrip())
    texts = [*([turn.text] if turn.text or not turn.calls else []), *(f"→ {call}" for call in turn.calls)]
    for n, text in enumerate(texts):
        yield from _text("" if n else label, text, width, most)
    if turn.cut:
        yield line(" " * _LABEL, (f"… {wording.count(turn.cut, 'character')} were not recorded", "dim"))
    if turn.tokens:
        yield from _text("", " · ".join(_tokens(turn)), width, _NO_LIMIT, style="dim")


def _tokens(turn: SampleTurn) -> Iterator[str]:
    yield wording.count(len(turn.tokens), "token")
    if turn.mask:
        yield f"{sum(turn.mask):,} trained on"
    if (gap := gap_of(turn)) is not None:
        yield f"gap {wording.number(gap.mean)} on average"
        engine, trainer = wording.number(gap.engine), wording.number(gap.trainer)
        piece = f", {safe(repr(turn.pieces[gap.place]))}" if gap.place < len(turn.pieces) else ""
        token = f"largest at token {gap.place:,} (id {turn.tokens[gap.place]}{piece})"
        yield f"{token}: probability {engine} in the engine, {trainer} in the trainer"


def _text(
    label: str, text: str, width: int, most: int, *, label_cells: int = _LABEL, style: Style = ""
) -> Iterator[Line]:
    """Yield the label and the text, wrapped. Of a long text, the middle is left out: answers are at the end."""
    room = max(20, width - label_cells)
    rows, left = wrapped(text, room, most)
    ends: list[str] = []
    if left:
        rows, left = wrapped(text, room, most - most // 3)
        ends = wrapped(text[-min(left, most // 3 * room) :], room, _NO_LIMIT)[0][-(most // 3) :]
        left -= sum(map(len, ends))
    if cell_len(label.rstrip()) >= label_cells:
        yield line((fit(label, min(width, cell_len(label))), style or "dim"))
        label = ""
    for row in rows:
        yield line((fit(label, label_cells), style or "dim"), (row, style))
        label = ""
    if left > 0:
        yield line(" " * label_cells, (f"… about {left:,} more characters (--full shows all)", "dim"))
    for row in ends:
        yield line(" " * label_cells, (row, style))
