"""Changes that the times of steps hide: of phases that most steps lack, and of trajectories in noisy steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.findings.step_change import Change, ChangeCause, fifths
from otel_rl.look.insight.findings.trajectory_times import grown_part, is_of_engines, trajectory_times
from otel_rl.look.insight.own_times import IN_STEPS
from otel_rl.look.insight.phases import logged_phases
from otel_rl.look.insight.recorded import PHASE
from otel_rl.look.insight.series import Series
from otel_rl.look.insight.shifts import Shift, shifts
from otel_rl.recorder.facts import wording
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.facts.order import Severity

_FACTOR = 1.5
"""How many times as long as before something takes, at the least: of many series, one has a small change by chance."""
_LEAST_SHARE = 0.02
"""Part of its longest time from which on a phase counts as one of its step; an empty block of `with` takes less."""
_COSTS, _COSTS_MUCH = 0.02, 0.08
"""Part of the time of steps that the change costs, at the least, and that is worth a warning."""
_LEAST_FEW, _LEAST_MANY = 10, 16
"""Occurrences from which on a phase of few steps is judged, and from which on like any series."""
_ADVICE = {
    "checkpoint": "Look at what it writes: its size, files that it keeps and lists, the file system.",
    "evaluation": "Look at how many prompts it has, and at the lengths of their completions.",
}
_OF_OTHERS = "Compare {} in the timeline of an early and of a late step."


class _Course(NamedTuple):
    """A phase, or trajectories, with the levels before and after; `is_slow` says that the change came bit by bit."""

    what: str
    shift: Shift
    is_slow: bool

    @property
    def text(self) -> str:
        was, now = wording.seconds(self.shift.before), wording.seconds(self.shift.after)
        first, since, last = map(wording.integer, (self.shift.first, self.shift.step, self.shift.last))
        if self.is_slow:
            return f"{self.what} became slower from step {first} to {last}: {was} → {now}"
        verb = "take" if self.what.endswith("s") and " " not in self.what else "takes"
        return f"{self.what} {verb} {now} since step {since}, {was} before"


def hidden_changes(recorded: RecordedRun, changes: list[Shift], *, is_live: bool) -> list[Finding]:
    """Return phases of few steps that became slower, and trajectories, if no change of steps was found."""
    found = [*_phases(recorded, is_live=is_live)]
    return found if changes or found else [*_trajectories(recorded, is_live=is_live)]


def _phases(recorded: RecordedRun, *, is_live: bool) -> Iterator[Finding]:
    whole = float(recorded.step_times.finite.values.sum())
    for phase, series in _seldom(recorded).items():
        course = _slower(phase, series, is_live=is_live)
        if course is None:
            continue
        later = series.between(course.shift.step, course.shift.last).finite.values
        share = (course.shift.after - course.shift.before) * len(later) / max(whole, 1e-9)
        advice = _ADVICE.get(category_of(phase), _OF_OTHERS.format(phase))
        if share >= _COSTS:
            yield _finding(recorded, course, "", advice, "warning" if share >= _COSTS_MUCH else "note", (phase,))


def _seldom(recorded: RecordedRun) -> dict[str, Series]:
    """Return the seconds of phases that most steps lack, by the steps that have them; logged ones without spans."""
    phases = _with_spans(recorded) or {name: recorded.series(name).finite for name in logged_phases(recorded)}
    steps = len(recorded.step_times.finite.steps)
    kept = {phase: _where_real(series) for phase, series in phases.items() if category_of(phase) != "waiting"}
    return {phase: series for phase, series in kept.items() if _LEAST_FEW <= len(series.steps) <= steps // 2}


def _with_spans(recorded: RecordedRun) -> dict[str, Series]:
    rows = recorded.run.sql(f"""
        WITH of_rank AS (
            SELECT phase, step, rank, sum(duration_ns)::DOUBLE / 1e9 AS took FROM spans
            WHERE {IN_STEPS} AND {PHASE} AND role IS NULL AND {recorded.whole_steps} GROUP BY ALL
        ) SELECT phase, step, max(took) AS took FROM of_rank GROUP BY ALL ORDER BY phase, step""")
    steps, seconds = np.asarray(rows["step"], np.int64), np.asarray(rows["took"], np.float64)
    names = np.array(rows["phase"].tolist(), object)
    return {str(phase): Series(steps[names == phase], seconds[names == phase]) for phase in dict.fromkeys(names)}


def _where_real(series: Series) -> Series:
    """Return the values that are not those of an empty block."""
    kept = series.values > _LEAST_SHARE * series.values.max(initial=0.0)
    return Series(series.steps[kept], series.values[kept])


def _trajectories(recorded: RecordedRun, *, is_live: bool) -> Iterator[Finding]:
    steps = recorded.step_times.finite.steps
    if len(steps) < 2 * _LEAST_MANY:
        return
    middle = int(steps[len(steps) // 2])
    times = trajectory_times(recorded, ((int(steps[0]), middle - 1), (middle, int(steps[-1]))))
    course = None if times is None else _slower("Trajectories", times.series(times.mean), is_live=is_live)
    if times is None or course is None:
        return
    shift = course.shift
    compared = ((shift.first, shift.step - 1), (shift.step, shift.last))
    if course.is_slow:
        compared = fifths(times.series(times.mean), shift)
    change = Change(recorded, shift, *compared, is_sudden=False)
    part = ChangeCause() if is_of_engines(change, times) else grown_part(change, times)
    if not part.text:
        return
    walls = [recorded.step_times.between(*of_steps).median for of_steps in (change.before, change.after)]
    is_costly = walls[1] > (1 + _COSTS_MUCH) * walls[0]
    yield _finding(recorded, course, part.text, part.advice, "warning" if is_costly else "note", ())


def _slower(what: str, series: Series, *, is_live: bool) -> _Course | None:
    """Return the change of a series, if it takes much longer now than at first."""
    values = series.finite.values
    if len(values) < _LEAST_MANY:
        found = _of_few(series.finite)
    else:
        least = (_FACTOR - 1) * float(np.median(values[: len(values) // 3]))
        found = shifts(series, _FACTOR - 1, is_live=is_live) or shifts(series, least, relative=False, is_live=is_live)
    if not found or any(shift.after <= shift.before for shift in found):
        return None
    first, last = found[0], found[-1]
    if last.after < _FACTOR * first.before:
        return None
    is_slow = len(found) > 1 or first.is_rise
    return _Course(what, last._replace(before=first.before, first=first.first), is_slow)


def _of_few(series: Series) -> list[Shift]:
    """Return the change of few values of which each one of the later half is above all of the earlier half."""
    steps, values = series
    half = len(values) // 2
    if len(values) < _LEAST_FEW or values[half:].min() <= values[:half].max():
        return []
    end = max(3, len(values) // 4)
    levels = float(np.median(values[:end])), float(np.median(values[-end:]))
    return [Shift(int(steps[half]), *levels, int(steps[0]), int(steps[-1]), is_rise=True)]


def _finding(
    recorded: RecordedRun, course: _Course, cause: str, advice: str, severity: Severity, phases: tuple[str, ...]
) -> Finding:
    return Finding(
        kind="change",
        severity=severity,
        sentence=f"{course.text}{' with ' if cause else ''}{cause}.",
        advice=advice,
        sure="likely",
        evidence=Evidence(steps=(course.shift.first, course.shift.last), phases=phases, panel="phases"),
        since_unix_nano=recorded.ended_at(course.shift.step),
        subject=f"time:{course.what}",
    )
