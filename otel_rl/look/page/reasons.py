"""Why the slow steps were slow: the sentences, the path of the slowest one through processes, and its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight import category_of
from otel_rl.look.insight.span_work import name_of
from otel_rl.look.insight.why.conclude import explained_steps
from otel_rl.look.insight.why.sentences import numbers_of, shown_parts
from otel_rl.look.page.about import table_of
from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.look.insight.why.answer import ExplainedSteps, PathPart, Stage
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.semconv.phase_categories import Category

_MOST_LANES = 12
_LEFT, _WIDTH, _ROW, _BAR = 190, 810, 24, 16
"""The column of names, that of bars, and the heights of a lane and of a bar, in units of the drawing."""
_LEAST = 0.8
"""Narrower stages are drawn as part of the one before them."""
_MOST_CHARACTERS = 26
_CATEGORIES: dict[str, Category] = {
    **dict.fromkeys(("trajectory", "model", "request"), "rollout"),
    **dict.fromkeys(("tool", "environment"), "evaluation"),
    "verifier": "reward",
    "span": "other",
    "none": "none",
}
_HEADS = ("part of the path", "time", "usual", "change", "step without it", "who")


class _Bar(NamedTuple):
    """A stage in units of the drawing."""

    stage: Stage
    left: float
    width: float
    lane: int


def reasons_of(run: RunReader) -> Markup:
    """Return why the slow steps of a run were slow, or why that cannot be said."""
    try:
        answer = explained_steps(run)
    except ValueError as error:
        return joined(tag("p", f"Unknown: {error}.", class_="note"))
    sentences = [tag("p", sentence, class_="finding-line") for sentence in (*answer.sentences, *answer.notes)]
    slowest = answer.steps[0]
    link = tag("a", f"Show step {wording.integer(slowest)} in the timeline", href=f"#step={slowest}&at=timeline")
    return joined(*sentences, _drawing(answer), tag("p", link), _table(answer))


def _drawing(answer: ExplainedSteps) -> Markup:
    """Return the path of the slowest step: a lane for each process, and a line where the path goes to another one."""
    bars = list(_bars(answer.path))
    lanes = list(dict.fromkeys(bar.stage.who for bar in bars))[:_MOST_LANES]
    height = _ROW * len(lanes) + 20
    names = [tag("text", _cut(who or "all ranks"), x="0", y=str(_ROW * n + 15)) for n, who in enumerate(lanes)]
    drawn = [element for before, bar in zip([None, *bars], bars, strict=False) for element in _drawn(before, bar)]
    total = answer.path[-1].ended_seconds if answer.path else 0.0
    axis = [
        tag("text", "0 s", x=str(_LEFT), y=str(height - 4)),
        tag("text", wording.seconds(total), x=str(_LEFT + _WIDTH), y=str(height - 4), text_anchor="end"),
    ]
    label = f"The critical path of step {answer.steps[0]}"
    box = f"0 0 {_LEFT + _WIDTH} {height}"
    svg = tag("svg", *names, *drawn, *axis, viewBox=box, class_="path", role="img", aria_label=label)
    return tag("div", svg, class_="panned", tabindex="0", role="region", aria_label=f"{label}, a drawing")


def _bars(path: Sequence[Stage]) -> Iterator[_Bar]:
    """Yield the stages as bars; narrow ones make the bar before them wider."""
    total = path[-1].ended_seconds if path else 1.0
    lanes: dict[str, int] = {}
    held: _Bar | None = None
    for stage in path:
        left = _LEFT + _WIDTH * stage.began_seconds / total
        width = _WIDTH * (stage.ended_seconds - stage.began_seconds) / total
        if held is not None and width < _LEAST:
            held = held._replace(width=left + width - held.left)
            continue
        if held is not None:
            yield held
        held = _Bar(stage, left, width, min(lanes.setdefault(stage.who, len(lanes)), _MOST_LANES - 1))
    if held is not None:
        yield held


def _drawn(before: _Bar | None, bar: _Bar) -> Iterator[Markup]:
    top = _ROW * bar.lane + (_ROW - _BAR) / 2
    stage = bar.stage
    category = category_of(stage.name) if stage.kind == "phase" else _CATEGORIES[stage.kind]
    times = f"{wording.seconds(stage.ended_seconds - stage.began_seconds)} from {wording.seconds(stage.began_seconds)}"
    title = tag("title", f"{name_of(stage.kind, stage.name)}, {stage.who or 'all ranks'}: {times}")
    if before is not None and before.lane != bar.lane:
        ends = sorted((_ROW * before.lane + _ROW / 2, _ROW * bar.lane + _ROW / 2))
        x = f"{bar.left:.1f}"
        yield tag("line", x1=x, x2=x, y1=f"{ends[0]:.1f}", y2=f"{ends[1]:.1f}")
    place = {"x": f"{bar.left:.1f}", "y": f"{top:.1f}", "width": f"{bar.width:.1f}", "height": str(_BAR)}
    yield tag("rect", title, class_=category, **place)


def _table(answer: ExplainedSteps) -> Markup:
    count = 1 if answer.usual_seconds is None else 4
    lines = [
        (_label(part), *numbers_of(part, answer)[:count], wording.names(part.who, 2)) for part in shown_parts(answer)
    ]
    heads = (*_HEADS[: 1 + count], _HEADS[-1])
    return table_of(heads, lines, "Parts of the critical path", numbers=range(1, 1 + count))


def _label(part: PathPart) -> str:
    return f"{name_of(part.kind, part.name)}{' (inferred)' if part.is_inferred else ''}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
