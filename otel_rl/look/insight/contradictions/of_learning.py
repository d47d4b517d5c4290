"""Trainings in which nothing is learned although they go on: a learning rate or a gradient of 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl.look.insight.contradictions.columns import Shape
from otel_rl.look.insight.contradictions.contradiction import Contradiction, of_rows
from otel_rl.look.insight.course import course_of
from otel_rl.look.insight.series import Series
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.look.insight.contradictions.columns import AlignedRows, Columns
    from otel_rl.look.insight.course import Course

_LEAST = 20
_OF_RATE = ("learning_rate", "lr", "actor_lr", "actor_learning_rate", "policy_lr")
_RATE = Shape(some=(frozenset(("lr", "learning_rate", "learning")),), none=frozenset(("critic", "value", "decay")))
_LAST = 10


def wanted(names: Iterable[str]) -> list[str]:
    """Return the names that these rules read, without the main metrics."""
    return [name for name in names if _RATE.fits(name)]


def zero_learning_rate(columns: Columns) -> Contradiction | None:
    """Nothing is learned at a learning rate of 0; a schedule reaches it in its last steps."""
    for name in columns.of_shape(_RATE):
        rows = columns.rows(name)
        since = _zero_since(rows)
        left = len(rows.steps) - since
        if left < max(_LAST, len(rows.steps) // 10) or _rises(columns, since):
            continue  # one that is rounded when it is logged can look like 0
        began = "in all steps" if since == 0 else f"since step {wording.integer(int(rows.steps[since]))}"
        declared = next(iter(columns.numbers(*_OF_RATE).items()), None)
        why = f" ({declared[0]} = {wording.number(declared[1])})" if declared else ""
        found = of_rows(
            (name,),
            rows.where(np.arange(len(rows.steps)) >= since),
            f"The learning rate is 0 {began}: {name} is exactly 0 in the last {wording.count(left, 'step')}{why}.",
            "Nothing is learned there. Check the length of the schedule: it counts in optimizer steps or in batches.",
        )
        return replace(found, covers=columns.of_topic("reward")[:1] if _is_flat(columns, since) else ())
    rates = (
        {} if any(columns.series(name).values.any() for name in columns.of_shape(_RATE)) else columns.numbers(*_OF_RATE)
    )
    rewards = columns.of_topic("reward")
    if rates and not any(rates.values()) and rewards and len(columns.series(rewards[0]).values) >= _LEAST:
        parameter = next(iter(rates))
        return of_rows(
            rewards[:1],
            columns.rows(rewards[0]),
            f"The learning rate is 0: {parameter} = 0 is recorded.",
            "Nothing is learned. Set the learning rate, or ignore this if the run only measures.",
        )
    return None


def zero_gradient(columns: Columns) -> Contradiction | None:
    """A gradient norm is not exactly 0 where rewards of different steps differ."""
    for name in columns.of_topic("gradient_norm"):
        rows = columns.rows(name)
        since = _zero_since(rows)
        rewards = columns.of_topic("reward")
        later = rows.where(np.arange(len(rows.steps)) >= since)
        if len(later.steps) < _LEAST or not rewards:
            continue
        reward = columns.series(rewards[0]).between(int(later.steps[0]), int(later.steps[-1])).values
        if not len(reward) or np.ptp(reward) == 0:
            continue  # solved, or without a signal
        began = "in all steps" if since == 0 else f"since step {wording.integer(int(later.steps[0]))}"
        found = of_rows(
            (name,),
            later,
            f"{name} is exactly 0 {began}, although rewards differ: the weights do not change.",
            "Check that the parameters need gradients, that the optimizer has them, and that advantages are not all 0.",
        )
        return replace(found, covers=rewards[:1] if _is_flat(columns, 0) else ())
    return None


def _zero_since(rows: AlignedRows) -> int:
    away = np.flatnonzero(rows.values[0] != 0)
    return int(away[-1]) + 1 if len(away) else 0


def _is_flat(columns: Columns, since: int) -> bool:
    course = _reward_since(columns, since)
    return course is not None and not course.has_changed


def _rises(columns: Columns, since: int) -> bool:
    course = _reward_since(columns, since)
    return course is not None and course.rises


def _reward_since(columns: Columns, since: int) -> Course | None:
    """Return the course of the reward from a place on; `None` if it is too short."""
    series = columns.series(columns.of_topic("reward")[0]) if columns.of_topic("reward") else None
    if series is None or len(series.values) - since < _LEAST:
        return None
    return course_of(Series(series.steps[since:], series.values[since:]))
