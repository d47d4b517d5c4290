"""The answer in sentences, and its parts as texts, as every screen shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.span_work import name_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.look.insight.why.answer import ExplainedSteps, PathPart

_MOST = 4
_LEAST = 0.01
"""The smallest part that has a sentence, as a fraction of the wall time."""
_MOST_STEPS = 6
_LEAST_SHOWN = 1e-3
"""The smallest part that is shown, as a fraction of the wall time."""


def sentences(
    steps: Sequence[int], phase: str, seconds: float, usual_seconds: float | None, parts: Sequence[PathPart]
) -> Iterator[str]:
    """Yield the answer: how long it took, and what makes it longer than usual, or what it consists of."""
    what = f"Phase {phase} of {_steps(steps)}" if phase else _steps(steps).capitalize()
    mean = " on average" if len(steps) > 1 else ""
    usual = "" if usual_seconds is None else f", usually {wording.seconds(usual_seconds)}"
    yield f"{what} took {wording.seconds(seconds)}{mean}{usual}."
    explained = 0.0
    worth = [part for part in parts if max(part.change_seconds, part.saves_seconds or 0) >= _LEAST * seconds]
    for part in worth[:_MOST]:
        explained += part.change_seconds
        yield _sentence(part, len(steps))
    if usual_seconds is None:
        return
    rest = seconds - usual_seconds - explained
    if abs(rest) >= _LEAST * seconds:
        yield f"{wording.signed_seconds(rest)}: all other parts together."


def _sentence(part: PathPart, steps: int) -> str:
    who = wording.names(part.who, 2)
    times = ""
    if part.kind not in ("phase", "none") and part.number > 1:
        number = wording.number(part.number / steps)
        times = f"{number} on the path, the longest {wording.seconds(part.longest_seconds)}"
    details = "; ".join(filter(None, (who, times)))
    text = f"{name_of(part.kind, part.name)}{f' ({details})' if details else ''}"
    if part.usual_seconds is None:
        text = f"{wording.seconds(part.seconds)}: {text}."
    else:
        took = f"{wording.seconds(part.seconds)}, usually {wording.seconds(part.usual_seconds)}"
        text = f"{wording.signed_seconds(part.change_seconds)}: {text}: {took}."
    if part.saves_seconds is not None and part.saves_seconds > 0:
        text += f" At its usual time, it would save {wording.seconds(part.saves_seconds)}."
    return text


def _steps(steps: Sequence[int]) -> str:
    numbers = [wording.integer(step) for step in sorted(steps)]
    return f"step{'s' if len(steps) > 1 else ''} {wording.names(numbers, _MOST_STEPS)}"


def shown_parts(explained: ExplainedSteps) -> list[PathPart]:
    """Return the parts that are large enough to be shown."""
    least = _LEAST_SHOWN * explained.seconds
    return [part for part in explained.parts if max(part.seconds, abs(part.change_seconds)) >= least]


def numbers_of(part: PathPart, explained: ExplainedSteps) -> tuple[str, str, str, str]:
    """Return its time, its usual time, the change, and the time of the step if the part was as usual."""
    usual, saves = part.usual_seconds, part.saves_seconds
    return (
        wording.seconds(part.seconds),
        "" if usual is None else wording.seconds(usual),
        "" if usual is None else wording.signed_seconds(part.change_seconds),
        "" if saves is None else wording.seconds(explained.seconds - saves),
    )
