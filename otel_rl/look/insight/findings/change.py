"""Steps that became slower or faster: since when, by which phase, and what changed with it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.phases import works
from otel_rl.look.insight.shifts import Shift, shifts
from otel_rl.recorder.facts import wording
from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.facts.order import Severity
    from otel_rl.semconv.main_metrics import Topic

LEAST = 0.08
"""The smallest change of the time of a step that is reported, as a fraction."""
_LARGE = 0.25
_WARM_UP_STEPS = 1
_LEAST_PART = 0.5
"""Share of a change that a phase has to have, to be named as its cause."""
_NEAR_STEPS = 10
"""Steps between the beginning of a straggler and the change that it makes, at the most."""
_TOGETHER = 0.1
"""The smallest change of a metric that counts as one that comes with it, as a fraction."""
_EXPLAINS = 0.5
"""Share of the growth of a phase, in logarithms, that a metric needs to explain it. Time grows with tokens, at most
with their square."""
_COMPANIONS: dict[str, tuple[Topic, ...]] = {
    "rollout": ("completion_length",),
    "training": ("completion_length",),
    "reward": ("completion_length",),
}
"""Metrics that change the time of phases, by the category of the phase."""


_Way = Literal["lasts", "lasted", "passed", "trend"]
"""Whether a change lasts until now, lasted until another one, went away again, or came bit by bit."""


class _ChangeCause(NamedTuple):
    """The cause of a change: in words, the phases, the names of metrics, what to do, and the findings about it."""

    text: str = ""
    phases: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    advice: str = ""
    covers: tuple[str, ...] = ()


def step_changes(recorded: RecordedRun) -> list[Shift]:
    """Return the changes of the time of a step; the first step, which warms up, is left out."""
    times = recorded.step_times
    return shifts(times.tail(max(0, len(times.steps) - _WARM_UP_STEPS)), LEAST)


def change(recorded: RecordedRun, changes: list[Shift], stragglers: Sequence[Finding]) -> list[Finding]:
    """Return the last change of the time of a step, and the largest one if that is twice as large."""
    return [_finding(recorded, shift, stragglers, way) for shift, way in _reported(recorded, changes)]


def lasting(recorded: RecordedRun, changes: list[Shift]) -> Shift | None:
    """Return the change that lasts until now; `None` without one, and for a trend, which came at no moment."""
    return next((shift for shift, way in _reported(recorded, changes) if way == "lasts"), None)


def _reported(recorded: RecordedRun, changes: list[Shift]) -> list[tuple[Shift, _Way]]:
    """Return the changes that are worth a line.

    A change that went away again has passed, and several small ones in a row are a trend.
    """
    if not changes:
        return []
    if (trend := _trend(recorded, changes)) is not None:
        return [(trend, "trend")]
    last, rest = changes[-1], changes[:-1]
    reported: list[tuple[Shift, _Way]] = [(last, "lasts")]
    if rest and abs(math.log(last.after / rest[-1].before)) < math.log1p(LEAST):
        reported, rest = [(rest[-1], "passed")], rest[:-1]
    largest = max(rest, key=_size, default=None)
    if largest is not None and _size(largest) >= 2 * _size(reported[0][0]):
        reported.insert(0, (largest, "lasted"))
    return reported


def _finding(recorded: RecordedRun, shift: Shift, stragglers: Sequence[Finding], way: _Way) -> Finding:
    compared = ((shift.first, shift.step - 1), (shift.step, shift.last))
    if way == "trend":
        compared = _fifths(recorded, shift)
    cause = _cause(recorded, shift, *compared, stragglers)
    is_slower = shift.after > shift.before
    first, since, until = (wording.integer(step) for step in (shift.first, shift.step, shift.last))
    now, was = wording.seconds(shift.after), wording.seconds(shift.before)
    text = {
        "lasts": f"Steps take {now} since step {since}, {was} before",
        "lasted": f"Steps took {now} from step {since} to {until}, {was} before",
        "passed": f"Steps took {now} from step {since} to {until}, {was} before and after",
        "trend": f"Steps became {'slower' if is_slower else 'faster'} from step {first} to {until}: {was} → {now}",
    }[way]
    joint = ("; " if way == "trend" else ": ") if cause.text else ""
    is_large = is_slower and way in ("lasts", "trend") and _size(shift) >= math.log1p(_LARGE)
    margin = max(5, (shift.last - shift.first) // 20)
    steps = (max(shift.first, shift.step - margin), min(shift.last, shift.step + margin))
    severity: Severity = "warning" if is_large else "note"
    return Finding(
        kind="change",
        severity=severity if is_slower or way == "passed" else "good",
        sentence=f"{text}{joint}{cause.text}.",
        advice=cause.advice if is_slower else "",
        sure="likely",
        evidence=Evidence(
            steps={"trend": (shift.first, shift.last), "passed": (shift.step, shift.last)}.get(way, steps),
            names=(*((STEP_TIME,) if STEP_TIME in recorded.names else ()), *cause.names),
            phases=cause.phases,
            panel="phases",
        ),
        since_unix_nano=recorded.ended_at(shift.step),
        subject=f"step time:{shift.step}",
        covers=cause.covers,
    )


def _trend(recorded: RecordedRun, changes: list[Shift]) -> Shift | None:
    """Return the last changes as one, if they have the same direction and a straight line fits them as well."""
    same = [changes[-1]]
    for change in reversed(changes[:-1]):
        if (change.after > change.before) != (same[0].after > same[0].before):
            break
        same.insert(0, change)
    if len(same) < 2:
        return None
    first, last = same[0].first, same[-1].last
    steps, values = recorded.step_times.between(first, last).finite
    logs, levels = np.log(values), np.full(len(values), math.log(same[0].before))
    for change in same:
        levels[steps >= change.step] = math.log(change.after)
    line = np.polyval(np.polyfit(steps - first, logs, 1), steps - first)
    if np.median(np.abs(logs - line)) > np.median(np.abs(logs - levels)):
        return None
    fifth = max(1, len(values) // 5)
    was, now = float(np.median(values[:fifth])), float(np.median(values[-fifth:]))
    return Shift((first + last) // 2, was, now, first, last)


def _fifths(recorded: RecordedRun, shift: Shift) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first and the last fifth of the steps of a trend."""
    steps = recorded.step_times.between(shift.first, shift.last).finite.steps
    fifth = max(1, len(steps) // 5)
    return (int(steps[0]), int(steps[fifth - 1])), (int(steps[-fifth]), int(steps[-1]))


def _size(shift: Shift) -> float:
    return abs(math.log(shift.after / shift.before))


def _cause(
    recorded: RecordedRun,
    shift: Shift,
    before: tuple[int, int],
    after: tuple[int, int],
    stragglers: Sequence[Finding],
) -> _ChangeCause:
    """Return the phase that makes up most of a change, and what changed with it, from the steps before and after."""
    works_before, works_after = works(recorded, before), works(recorded, after)
    gaps = {
        phase: works_after.get(phase, 0.0) - works_before.get(phase, 0.0) for phase in {**works_before, **works_after}
    }
    whole = shift.after - shift.before
    if not gaps or not whole:
        return _resume(recorded, shift)
    phase = max(gaps, key=lambda name: gaps[name] / whole)
    part = gaps[phase] / whole
    if part < _LEAST_PART:
        rest = 1 - sum(gap / whole for gap in gaps.values())
        resumed = _resume(recorded, shift)
        if rest >= _LEAST_PART and not resumed.text:
            return _ChangeCause("the time outside of phases changed")
        return resumed
    was, now = works_before.get(phase, 0.0), works_after.get(phase, 0.0)
    verb = "grew" if now > was else "fell"
    text = f"{phase} {verb} from {wording.seconds(was)} to {wording.seconds(now)}"
    if not was:
        text = f"{phase} takes {wording.seconds(now)}, and was not there before"
    elif not now:
        text = f"{phase} took {wording.seconds(was)}, and is gone"
    for straggler in stragglers:
        steps = straggler.evidence.steps
        if steps and straggler.evidence.phases == (phase,) and abs(steps[0] - shift.step) <= _NEAR_STEPS and now > was:
            who = recorded.rank_text(straggler.evidence.ranks[0])
            return _ChangeCause(f"{text} on {who}", (phase,), (), straggler.advice, (straggler.subject,))
    for topic in _COMPANIONS.get(category_of(phase), ()) if was and now else ():
        if together := _together(recorded, topic, before, after, math.log(now / was)):
            name, old, new = together
            what = "the length of completions"
            text = f"{phase} {verb} with {what} ({wording.number(old)} → {wording.number(new)} tokens)"
            advice = "Cap the length of completions, or use a reward that does not pay for length."
            return _ChangeCause(text, (phase,), (name,), advice if new > old else "")
    resumed = _resume(recorded, shift)
    if resumed.text:
        text = f"{text}, {resumed.text}"
    return _ChangeCause(text, (phase,), (), f"Look at {phase} in the timeline of a step before and after.")


def _together(
    recorded: RecordedRun, topic: Topic, before: tuple[int, int], after: tuple[int, int], growth: float
) -> tuple[str, float, float] | None:
    """Return the name and the medians of a metric that explains the logarithmic growth of a phase; `None` if not."""
    name, series = recorded.of_topic(topic)
    old, new = series.between(*before).median, series.between(*after).median
    if not (old > 0 and new > 0):
        return None
    share = math.log(new / old) / growth if growth else 0.0
    return (name, old, new) if share >= _EXPLAINS and abs(math.log(new / old)) >= math.log1p(_TOGETHER) else None


def _resume(recorded: RecordedRun, shift: Shift) -> _ChangeCause:
    """Return that the run was resumed there, on other machines perhaps."""
    near = max(2, (shift.last - shift.first) // 50)
    for (attempt, _, _), (later, first, _) in pairwise(recorded.firsts):
        if abs(first - shift.step) > near:
            continue
        hosts = [{*recorded.hosts_of(number)} for number in (attempt, later)]
        moved = hosts[0] != hosts[1]
        machines = f" on {wording.names(sorted(hosts[1] - hosts[0] or hosts[1]))}" if moved else ""
        return _ChangeCause(f"since the resume at step {wording.integer(first)}{machines}")
    return _ChangeCause()
