"""The parts of a reward: which of them pay for its course, and whether one that paid before falls meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.course import LEAST_STEPS, LEAST_STEPS_FLAT, course_of, fall_of, move_of, rise_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.look.insight.course import Course, Move
    from otel_rl.look.insight.series import Series

_AIMS = re.compile(
    r"accura|\bacc\b|correct|verif|answer|solve|success|task|outcome|exact|match|test|pass|goal|win|ground_truth|math|code",
    re.IGNORECASE,
)
"""Names of parts that say whether the task is solved; others say how."""
_FORMS = re.compile(
    r"format|length|brevity|style|xml|tags?\b|struct|think|language|tone|count|json|syntax|template|polite|bonus",
    re.IGNORECASE,
)
"""Names of parts that say how it is solved."""
_EARNED = 0.95
"""Part of a highest value of 1 from which on nearly every completion earns a part."""


class PaidReward(NamedTuple):
    """The parts of a reward that rose, those that fell or stayed meanwhile, and whether the aim is among the latter."""

    risen: dict[str, Move]
    fallen: dict[str, Move]
    stays: dict[str, float]
    misses_aim: bool


def paid_reward(reward: Series, parts: Mapping[str, Series]) -> PaidReward | None:
    """Return what pays for a reward that does not fall, where that is not what paid before; else `None`.

    Args:
        reward: The finite values of the reward.
        parts: Those of its parts, by name.
    """
    if len(reward.values) < LEAST_STEPS:
        return None
    total = course_of(reward)
    courses = {name: course_of(part) for name, part in parts.items() if len(part.values) >= LEAST_STEPS}
    risen = {name: course for name, course in courses.items() if rise_of(parts[name], course) is not None}
    fallen = {
        name: course
        for name, course in courses.items()
        if course.falls and course.start > 0 and fall_of(parts[name], course) is not None
    }
    if total.falls or not risen:
        return None
    if fallen:
        # Better answers at the cost of a bonus are a trade that the weights allow.
        misses = any(map(_is_aim, fallen)) or not any(map(_is_aim, risen))
        return PaidReward(_moves(risen, parts), _moves(fallen, parts), {}, misses)
    aims = [*filter(_is_aim, courses)] or [name for name in courses if not _FORMS.search(name)]
    stays = {name: course.end for name, course in courses.items() if name in aims and _can_rise(course)}
    pays_all = len(reward.values) >= LEAST_STEPS_FLAT and total.rises and not any(name in aims for name in risen)
    return PaidReward(_moves(risen, parts), {}, stays, misses_aim=True) if pays_all and stays else None


def _is_aim(name: str) -> bool:
    return _AIMS.search(name.removeprefix("reward").removesuffix("/mean")) is not None


def _can_rise(course: Course) -> bool:
    return not course.has_changed and course.end < _EARNED


def _moves(courses: Mapping[str, Course], parts: Mapping[str, Series]) -> dict[str, Move]:
    return {name: move_of(parts[name], course.start, course.end) for name, course in courses.items()}
