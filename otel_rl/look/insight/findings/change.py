"""Steps that became slower or faster: since when, by which phase, and what changed with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.findings.change_cause import cause_of
from otel_rl.look.insight.findings.step_change import Change, fifths
from otel_rl.look.insight.shifts import Shift, shifts
from otel_rl.recorder.facts import wording
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.facts.order import Severity

LEAST = 0.08
"""The smallest change of the time of a step that is reported, as a fraction."""
_LEAST_SECONDS = 0.001
"""And in seconds: steps of microseconds are those of a test, or of a trainer that does nothing."""
_LARGE = 0.25
_WARM_UP_STEPS = 1

_Way = Literal["lasts", "lasted", "passed", "trend"]
"""Whether a change lasts until now, lasted until another one, went away again, or came bit by bit."""


def step_changes(recorded: RecordedRun, *, is_live: bool) -> list[Shift]:
    """Return the changes of the time of a step; the first step, which warms up, is left out."""
    times = recorded.step_times
    changes = shifts(times.tail(max(0, len(times.steps) - _WARM_UP_STEPS)), LEAST, is_live=is_live)
    return [shift for shift in changes if abs(shift.after - shift.before) >= _LEAST_SECONDS]


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
    last, rest = changes[-1], [shift for shift in changes[:-1] if not shift.is_rise]
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
        compared = fifths(recorded.step_times, shift)
    cause = cause_of(Change(recorded, shift, *compared, way != "trend"), stragglers)
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
            ranks=cause.ranks,
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
    if same[0].is_rise:
        return same[0]
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


def _size(shift: Shift) -> float:
    return abs(math.log(shift.after / shift.before))
