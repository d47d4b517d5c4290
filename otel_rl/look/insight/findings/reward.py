"""The reward: whether it rose, fell or is flat, and whether the parts that pay for it are the aim."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.course import LEAST_STEPS, LEAST_STEPS_FLAT, Move, course_of, fall_of, flat_since, rise_of
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.reward_parts import paid_reward
from otel_rl.look.insight.troubles import ENGINE_GAP, REWARD_PARTS, WEIGHTS, of_metric
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.look.insight.course import Course
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.reward_parts import PaidReward
    from otel_rl.look.insight.series import Series
    from otel_rl.recorder.facts.order import Severity
    from otel_rl.semconv.main_metrics import Topic

_SOLVED_STEPS = 20
_SIGNS: tuple[Topic, ...] = ("entropy", "kl", "gradient_norm")
"""Metrics that rise where a policy becomes ill."""
_MUCH = 1.5
"""How many times as large such a metric becomes while the reward falls, at the least."""
_NEAR = 10
"""Steps between such a rise and the fall, at the most: a KL rises from 0 at the start of any run."""
_LEVEL = 20
"""Values before and after a fall whose median is the level of a sign."""
_LATER = 20
"""Steps after a harder task in which a fall of the reward is due to it."""


def reward(recorded: RecordedRun) -> list[Finding]:
    """Return the course of the reward, after what pays for it if that is not the aim."""
    name, series = recorded.of_topic("reward")
    series = series.finite
    if len(series.values) < LEAST_STEPS:
        return []
    parts = {part: recorded.series(part).finite for part in recorded.main.by_topic.get("reward_components", ())}
    paid = paid_reward(series, parts)
    if paid is not None and paid.misses_aim:
        return [_paid(name, series, paid)]  # the course is in its sentence
    signs = [recorded.of_topic(topic) for topic in _SIGNS]
    return [*_course(name, series, _harder(recorded), signs), *([] if paid is None else [_paid(name, series, paid)])]


def _harder(recorded: RecordedRun) -> dict[str, Series]:
    return {name: recorded.series(name).finite for name in recorded.main.by_topic.get("difficulty", ())}


def _course(
    name: str, series: Series, harder: Mapping[str, Series], signs: Sequence[tuple[str, Series]]
) -> list[Finding]:
    course = course_of(series)
    first, last = int(series.steps[0]), int(series.steps[-1])
    if (solved := _solved_since(series)) is not None:
        text = f"Reward is exactly {wording.number(course.end)}, the most it has been, since step {_step(solved)}"
        return [_finding("note", text, "The prompts are solved: take harder ones, or stop.", name, (solved, last))]
    fall = fall_of(series, course)
    if fall is not None:
        return [_fallen(name, course, fall, harder, last, _risen(signs, fall))]
    if not course.has_changed:
        if len(series.values) < LEAST_STEPS_FLAT:
            return []
        start, end, steps = wording.number(course.start), wording.number(course.end), len(series.values)
        text = f"Reward did not change in {wording.count(steps, 'step')}: {start} at the start, {end} at the end"
        advice = "Look at samples: is a right answer rewarded, and are there groups with different rewards?"
        return [_finding("note", text, advice, name, (first, last))]
    text = f"Reward {wording.number(course.start)} → {wording.number(course.end)}"
    flat = flat_since(course) if course.rises and len(series.values) >= LEAST_STEPS_FLAT else None
    if flat is not None:
        since = int(series.steps[flat])
        advice = "If it is as good as it can be, stop here; otherwise try harder prompts."
        return [_finding("note", f"{text}, flat since step {_step(since)}", advice, name, (since, last))]
    return [_finding("good" if course.rises else "note", text, "", name, (first, last))]


def _solved_since(series: Series) -> int | None:
    """Return the step since which the reward is the most that it has ever been, to the bit, after having been less."""
    most = float(series.values.max())
    less = np.flatnonzero(series.values < most)
    if not len(less) or most <= 0 or len(series.values) - less[-1] - 1 < _SOLVED_STEPS:
        return None
    return int(series.steps[less[-1] + 1])


def _risen(signs: Sequence[tuple[str, Series]], fall: Move) -> str:
    """Return which sign of illness rose most during a fall, in words; empty without one."""
    rises = []
    for name, series in signs:
        known = series.finite
        rise = rise_of(known, course_of(known)) if len(known.values) >= LEAST_STEPS else None
        if rise is None or rise.first > fall.last + _NEAR or rise.last < fall.first - _NEAR:
            continue
        was, now = _levels_around(known, fall)
        if now >= _MUCH * was > 0:
            rises.append((now / was, f", while {name} rose {_levels(rise)} {_when(rise)}"))
    return max(rises, default=(0.0, ""))[1]


def _levels_around(series: Series, fall: Move) -> tuple[float, float]:
    """Return the levels of a series before a fall and at its end."""
    first, last = (int(place) for place in np.searchsorted(series.steps, [fall.first - _NEAR, fall.last]))
    before, after = series.values[max(0, first - _LEVEL) : max(1, first)], series.values[last : last + _LEVEL]
    return float(np.median(before)), float(np.median(after)) if len(after) else 0.0


def _fallen(name: str, course: Course, fall: Move, harder: Mapping[str, Series], last: int, meanwhile: str) -> Finding:
    text = f"Reward fell from {wording.number(fall.before)} to {wording.number(fall.after)} {_when(fall)}"
    for level, series in harder.items():
        if (rise := _rise(series, fall)) is not None:
            reason = f"{level} went {wording.number(rise.before)} → {wording.number(rise.after)}"
            return _finding("note", f"{text}, where {reason}", "", name, (fall.first, last))
    advice = f"Look at KL, entropy and gradient norm from step {_step(fall.first)} on; resume from a checkpoint before."
    severity: Severity = "warning" if course.rises else "bad"
    return _finding(severity, f"{text}{meanwhile}", advice, name, (fall.first, last))


def _rise(level: Series, fall: Move) -> Move | None:
    """Return the last step to harder tasks shortly before a fall."""
    near = np.flatnonzero(np.diff(level.values) > 0)
    at = [n for n in near if fall.first - _LATER <= level.steps[n + 1] <= fall.last]
    if not at:
        return None
    return Move(float(level.values[at[0]]), float(level.values[at[-1] + 1]), int(level.steps[at[0]]), fall.last)


def _paid(name: str, series: Series, paid: PaidReward) -> Finding:
    course = course_of(series)
    pays = wording.names([f"{part} rose {_levels(move)}" for part, move in paid.risen.items()])
    if paid.fallen:
        others = wording.names([f"{part} fell {_levels(move)}" for part, move in paid.fallen.items()])
    else:
        others = wording.names([f"{part} stays at {wording.number(level)}" for part, level in paid.stays.items()])
    moves = [*paid.fallen.values(), *paid.risen.values()]
    names = (*paid.fallen, *paid.stays, *paid.risen)
    whole = f"{wording.number(course.start)} → {wording.number(course.end)}"
    text = f"Reward {whole}: {pays}, while {others}, {_when(moves[0])}"
    advice = (
        f"If {next(iter(names))} is the aim, the policy games the reward: raise its weight or cap the other parts,"
        f" and read samples from before and after step {_step(moves[0].first)}."
    )
    steps = (min(move.first for move in moves), int(series.steps[-1]))
    return Finding(
        kind="learning",
        severity="warning" if paid.misses_aim else "note",
        sentence=f"{text}.",
        advice=advice if paid.misses_aim else "",
        sure="likely",
        evidence=Evidence(steps=steps, names=(name, *names), panel="curves"),
        subject=REWARD_PARTS,
        covers=(of_metric(name), *map(of_metric, names)) if paid.misses_aim else (),
    )


def _levels(move: Move) -> str:
    return f"{wording.number(move.before)} → {wording.number(move.after)}"


def _when(move: Move) -> str:
    if move.first == move.last:
        return f"at step {_step(move.first)}"
    return f"between steps {_step(move.first)} and {_step(move.last)}"


def _step(step: int) -> str:
    return wording.integer(step)


def _finding(severity: Severity, text: str, advice: str, name: str, steps: tuple[int, int]) -> Finding:
    return Finding(
        kind="learning",
        severity=severity,
        sentence=f"{text}.",
        advice=advice,
        sure="likely",
        evidence=Evidence(steps=steps, names=(name,), panel="curves"),
        subject=of_metric(name),
        needs=(REWARD_PARTS, ENGINE_GAP, WEIGHTS),
    )
