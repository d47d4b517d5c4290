"""Evaluations that become worse while the reward of the training rises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.course import LEAST_STEPS, course_of, is_less
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.troubles import of_metric
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.series import Series

_LEAST = 12
"""Evaluations that are needed: all of the last third below all of the first one are by chance in 1 of 70 runs."""
_MUCH = 0.1
"""Part of the level by which an evaluation has to fall."""


def held_out(recorded: RecordedRun) -> list[Finding]:
    """Return the evaluation that fell most while the reward rose; nothing if another one rose."""
    name, reward = recorded.of_topic("reward")
    reward = reward.finite
    if len(reward.values) < LEAST_STEPS or not (course := course_of(reward)).rises:
        return []
    names = [other for other in recorded.main.by_topic.get("evaluation", ()) if other != name]
    moves = {other: _thirds(recorded.series(other).finite) for other in names}
    known = {other: move for other, move in moves.items() if move is not None}
    if not known or any(now > was for was, now in known.values()):
        return []
    fallen = {other: move for other, move in known.items() if is_less(move[1], move[0] * (1 - _MUCH))}
    if not fallen:
        return []
    worst = min(fallen, key=lambda other: fallen[other][1] / fallen[other][0])
    was, now = fallen[worst]
    series = recorded.series(worst).finite
    best = int(series.steps[int(series.values.argmax())])
    return [
        Finding(
            kind="learning",
            severity="warning",
            sentence=f"Reward {wording.number(course.start)} → {wording.number(course.end)}, while {worst} fell"
            f" {wording.number(was)} → {wording.number(now)}: what is learned does not carry over.",
            advice=f"Take the checkpoint of about step {wording.integer(best)}, where {worst} is best. Read samples:"
            " the policy may game the reward, or learn the prompts by heart.",
            sure="likely",
            evidence=Evidence(steps=(best, int(series.steps[-1])), names=(worst, name), panel="curves"),
            subject=of_metric(worst),
            covers=(of_metric(name),),
        )
    ]


def _thirds(series: Series) -> tuple[float, float] | None:
    """Return the medians of the first and the last third of positive values, if all of one are beyond the other's."""
    third = len(series.values) // 3
    if len(series.values) < _LEAST or series.values.min() < 0:
        return None
    first, last = series.values[:third], series.values[-third:]
    if len(first) >= LEAST_STEPS:  # of many, medians of their parts: single ones overlap by noise
        first, last = (np.array([np.median(part) for part in np.array_split(values, 4)]) for values in (first, last))
    is_apart = last.max() < first.min() or last.min() > first.max()
    return (float(np.median(first)), float(np.median(last))) if is_apart else (0.0, 0.0)
