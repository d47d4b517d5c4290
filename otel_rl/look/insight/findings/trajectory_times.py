"""How long trajectories and their parts take: which part grew, and whether all trajectories did or the longest one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.findings.step_change import ChangeCause
from otel_rl.look.insight.recorded import in_sample
from otel_rl.look.insight.series import Series
from otel_rl.look.insight.span_work import ENDED, KIND, OF_PART, OF_TRAJECTORY, TITLE, SpanWork, name_of
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import wording
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.look.insight.findings.step_change import Change, GrownPhase
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.series import Floats, Integers
    from otel_rl.look.insight.span_work import WorkKind

_OF_TRAJECTORIES = ("rollout", "waiting", "reward", "other")
"""Categories of phases that trajectories are made in, or awaited in."""
_MOST_STEPS = 64
"""Steps of a range whose trajectories are looked at."""
_LEAST_STEPS = 5
_LEAST_OF_STEP = 3
"""Trajectories of a step from which on the longest one differs from the usual one."""
_STEADY = 0.25
"""Part of the growth up to which something else stayed as it was."""
_CARRIES = 0.7
"""Part of the growth of a trajectory that one of its parts has, to be named alone."""

_LONGEST_ADVICE = "Read the longest trajectories of a step: limit their turns and tokens, or do not wait for the last."


class TrajectoryTimes(NamedTuple):
    """Seconds of trajectories by the step that they ended in: the longest one, the median one, the mean, their parts.

    Parts are those of the mean trajectory, and of the longest one.
    """

    steps: Integers
    number: Floats
    longest: Floats
    middle: Floats
    mean: Floats
    parts: Mapping[SpanWork, Floats]
    parts_of_longest: Mapping[SpanWork, Floats]

    def series(self, values: Floats) -> Series:
        """Return values by step."""
        return Series(self.steps, values)


class _Growth(NamedTuple):
    """Seconds before and after a change."""

    was: float
    now: float

    @property
    def gap(self) -> float:
        return self.now - self.was

    @property
    def factor(self) -> float:
        """The logarithm of the factor; infinite for what was not there before."""
        return math.log(self.now / self.was) if self.was > 0 and self.now > 0 else math.copysign(math.inf, self.gap)

    @property
    def text(self) -> str:
        return f"({wording.seconds(self.was)} → {wording.seconds(self.now)})"


def part_that_grew(change: Change, grown: GrownPhase, *, of_engines: bool) -> ChangeCause:
    """Return which part of trajectories carries the growth of a phase, or that the longest trajectory alone grew.

    Args:
        change: The change.
        grown: The phase.
        of_engines: Whether the part is the model, which what is known of engines may explain better, or another one.
    """
    times = _explaining(change, grown)
    if times is None:
        return ChangeCause()
    if is_of_engines(change, times) != of_engines:
        return ChangeCause()
    part = grown_part(change, times)
    return part._replace(text=f"{grown.text} with {part.text}", phases=(grown.phase,)) if part.text else part


def grown_part(change: Change, times: TrajectoryTimes) -> ChangeCause:
    """Return the part that carries the growth of trajectories, or that the longest one alone grew; else nothing."""
    is_tail = _is_tail(change, times)
    work = _carrier(change, times, is_tail=is_tail)
    named, growth = "", ""
    if work is not None:
        named = name_of(work.kind, work.name)
        growth = _growth(change, times, (times.parts_of_longest if is_tail else times.parts)[work]).text
    if is_tail:
        longest, middle = _growth(change, times, times.longest), _growth(change, times, times.middle)
        where = f", by its part {named} {growth}" if named else ""
        usual = f"the median one takes {wording.seconds(middle.now)}, {wording.seconds(middle.was)} before"
        return ChangeCause(f"the longest trajectory of a step {longest.text}{where}; {usual}", advice=_LONGEST_ADVICE)
    if work is None:
        return ChangeCause()
    advice = f"Look at {named} of trajectories: its queue, limits of requests, what earlier ones left behind."
    return ChangeCause(f"{named} of trajectories {growth}, and no other part of them", advice=advice)


def is_of_engines(change: Change, times: TrajectoryTimes) -> bool:
    """Return whether the model is the part that grew, in usual trajectories."""
    is_tail = _is_tail(change, times)
    work = _carrier(change, times, is_tail=is_tail)
    return not is_tail and work is not None and work.kind == "model"


def _explaining(change: Change, grown: GrownPhase) -> TrajectoryTimes | None:
    """Return the times of trajectories, if they grew like a phase that needs them."""
    if category_of(grown.phase) not in _OF_TRAJECTORIES or grown.now <= grown.was:
        return None
    times = trajectory_times(change.recorded, (change.before, change.after))
    if times is None:
        return None
    explaining = (times.longest, times.mean)
    return times if any(change.explains(times.series(values), grown) for values in explaining) else None


def _is_tail(change: Change, times: TrajectoryTimes) -> bool:
    """Return whether the longest trajectory of a step grew alone."""
    longest, middle = _growth(change, times, times.longest), _growth(change, times, times.middle)
    several = times.series(times.number)
    least = min(several.between(*steps).median for steps in (change.before, change.after))
    return least >= _LEAST_OF_STEP and longest.gap > 0 and abs(middle.factor) <= _STEADY * longest.factor


def _carrier(change: Change, times: TrajectoryTimes, *, is_tail: bool) -> SpanWork | None:
    """Return the part that has most of the growth of trajectories, if no other part has much of it."""
    whole = _growth(change, times, times.longest if is_tail else times.mean).gap
    parts = times.parts_of_longest if is_tail else times.parts
    gaps = {work: _growth(change, times, values).gap for work, values in parts.items()}
    if not gaps or whole <= 0:
        return None
    most = max(gaps, key=gaps.__getitem__)
    others = max((abs(gap) for work, gap in gaps.items() if work != most), default=0.0)
    return most if gaps[most] >= _CARRIES * whole and others <= _STEADY * gaps[most] else None


def _growth(change: Change, times: TrajectoryTimes, values: Floats) -> _Growth:
    series = times.series(values)
    return _Growth(*(series.between(*steps).median for steps in (change.before, change.after)))


def trajectory_times(recorded: RecordedRun, ranges: tuple[tuple[int, int], ...]) -> TrajectoryTimes | None:
    """Return the times of trajectories that ended in steps of these ranges; `None` if too few did."""
    near = " OR ".join(in_sample(*steps, _MOST_STEPS, 4) for steps in ranges)
    whole = f"""loops AS (SELECT step, min(start_unix_nano) AS began, max({ENDED}) AS ended FROM spans
            WHERE name = '{semconv.SPAN_LOOP}' AND ({near}) GROUP BY step
        ), trajectories AS (
            SELECT l.step, t.trace_id, max(t.duration_ns) / 1e9 AS seconds
            FROM (
                SELECT trace_id, duration_ns, {ENDED} AS ended FROM spans WHERE {OF_TRAJECTORY} AND duration_ns >= 0
            ) t ASOF JOIN loops l ON t.ended >= l.began WHERE t.ended <= l.ended GROUP BY ALL
        ), by_step AS (
            SELECT step, count(*)::DOUBLE AS number, max(seconds) AS longest, median(seconds) AS middle,
                avg(seconds) AS mean, arg_max(trace_id, seconds) AS trace FROM trajectories GROUP BY step
        )"""
    rows = lines_of(recorded.run.sql(f"WITH {whole} SELECT * EXCLUDE trace FROM by_step ORDER BY step"))
    steps = np.array([row[0] for row in rows], np.int64)
    if any(((steps >= first) & (steps <= last)).sum() < _LEAST_STEPS for first, last in ranges):
        return None
    parts = lines_of(
        recorded.run.sql(f"""WITH {whole}, parts AS (
                SELECT trace_id, {KIND} AS kind, {TITLE} AS title, coalesce(own_ns, duration_ns) / 1e9 AS seconds
                FROM spans WHERE {OF_PART} AND duration_ns >= 0
            )
            SELECT step, kind, title, sum(p.seconds) / any_value(number) AS of_mean,
                coalesce(sum(p.seconds) FILTER (p.trace_id = trace), 0) AS of_longest
            FROM parts p JOIN trajectories USING (trace_id) JOIN by_step USING (step) GROUP BY ALL ORDER BY ALL""")
    )
    number, longest, middle, mean = (np.array([row[at] for row in rows], np.float64) for at in range(1, 5))
    of_mean, of_longest = (_by_work(steps, [(*line[:3], line[at]) for line in parts]) for at in (3, 4))
    return TrajectoryTimes(steps, number, longest, middle, mean, of_mean, of_longest)


def _by_work(steps: Integers, lines: Iterable[tuple[int, WorkKind, str, float]]) -> dict[SpanWork, Floats]:
    """Return the seconds of parts by step, with 0 in steps that lack a part."""
    places = {int(step): place for place, step in enumerate(steps)}
    works: dict[SpanWork, Floats] = {}
    for step, kind, name, seconds in lines:
        works.setdefault(SpanWork(kind, name), np.zeros(len(steps)))[places[step]] = seconds
    return works
