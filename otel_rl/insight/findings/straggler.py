"""Ranks that the others wait for: which, in which phase, since when, and how much it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.archive.valid import literal
from otel_rl.insight import wording
from otel_rl.insight.facts import Evidence, Finding
from otel_rl.insight.recorded import PHASE, in_sample, middle_of
from otel_rl.insight.series import Series
from otel_rl.insight.shifts import shifts

if TYPE_CHECKING:
    from otel_rl.insight.facts import Severity
    from otel_rl.insight.recorded import Happening, Recorded

_MOST = 3
_BEFORE = 200
"""Steps before the report in which the beginning is looked for; it takes at least five steps to be sure."""
_MOST_STEPS = 600
_BAD_SHARE = 0.05
_LEAST_SHARE = 0.005
_RECOVERED = 0.3
"""Part of the earlier delay below which a rank has recovered."""


class _Delay(NamedTuple):
    """By how much a rank becomes later than the others in a phase: a series in seconds, and the time of these steps."""

    series: Series
    seconds: float


def straggler(recorded: Recorded) -> list[Finding]:
    """Return the ranks that the agent reported, those that cost most first."""
    if recorded.steps is None:
        return []
    events: dict[tuple[int, str], Happening] = {}
    for one in recorded.events_of(semconv.EVENT_STRAGGLER):
        if one.rank is not None and one.step is not None:
            events.setdefault((one.rank, str(one.attributes.get(semconv.PHASE, ""))), one)
    found = [_finding(recorded, rank, phase, event) for (rank, phase), event in events.items()]
    costly = sorted((one for one in found if one is not None), key=lambda one: -one[0])
    return [finding for _, finding in costly[:_MOST]]


def _finding(recorded: Recorded, rank: int, phase: str, event: Happening) -> tuple[float, Finding] | None:
    assert event.step is not None
    assert recorded.steps is not None
    last = recorded.steps.last
    since, until = _since(recorded, rank, phase, event.step), None
    after = _delays(recorded, rank, phase, since, last)
    if not after.series or after.seconds <= 0:
        share, seconds = 0.0, float(event.attributes.get(semconv.STRAGGLER_DELAY, 0.0))
    else:
        values = np.maximum(after.series.values, 0.0)
        share, seconds = float(values.sum()) / after.seconds, float(np.median(values))
        quarter = after.series.tail(max(5, len(values) // 4))
        at_first = after.series.between(since, event.step + 20).median
        if len(values) >= 40 and quarter.median < _RECOVERED * at_first:
            ends = [one.step for one in shifts(after.series, seconds / 2, relative=False) if one.after < one.before]
            until = ends[-1] if ends else None
    if share and share < _LEAST_SHARE:
        return None
    who = recorded.rank_text(rank, event.role, event.host)
    cost = f" for {wording.percent(share)} of the time" if share else f" for {wording.seconds(seconds)} a step"
    when = f"since step {wording.integer(since)}"
    if until is not None:
        when = f"from step {wording.integer(since)} to {wording.integer(until)}"
    host = event.host or recorded.host_of(rank)
    place = host if host and len(recorded.hosts) > 1 else f"rank {rank}"
    advice = f"Compare {place} with the others: clocks and temperature of the GPU, other jobs on the machine."
    severity: Severity = "warning" if share >= _BAD_SHARE and until is None else "note"
    finding = Finding(
        kind="straggler",
        severity=severity,
        sentence=f"{who[:1].upper()}{who[1:]} made the others wait{cost}, in {phase}, {when}.",
        advice=advice if until is None else "",
        sure="likely",
        evidence=Evidence(
            steps=(since, last if until is None else until),
            ranks=(rank,),
            role=event.role,
            phases=(phase,),
            panel="waiting",
        ),
    )
    return share, finding


def _since(recorded: Recorded, rank: int, phase: str, reported: int) -> int:
    """Return the step in which a rank became slow, before it was reported."""
    before = _delays(recorded, rank, phase, reported - _BEFORE, reported)
    values = before.series.values
    if len(values) < 6:
        return reported
    whole = float(np.median(values[-5:]))
    late = np.flatnonzero(values < whole / 2)  # the steps in which it was not slow
    if len(late) == 0:
        return int(before.series.steps[0])
    steps = before.series.steps
    gain = np.cumsum((values - whole / 2)[::-1])[::-1]  # from each step on, how much more it was slow than not
    return int(steps[int(np.argmax(gain))])


def _delays(recorded: Recorded, rank: int, phase: str, first: int, last: int) -> _Delay:
    """Return the delays of a rank in steps of a range; of a long one, in some ranges inside it.

    As in the agent's analysis: how much later than the median of the ranks it leaves the phase, less how much later it
    entered it. Times count from the first phase of each rank in the step.
    """
    query = f"""
        WITH found AS (
            SELECT step, rank, phase, start_unix_nano AS began, start_unix_nano + duration_ns AS ended
            FROM spans WHERE phase IS NOT NULL AND {PHASE} AND role IS NULL
                AND {recorded.whole_steps} AND {in_sample(first, last, _MOST_STEPS, 12)}
        ), of_rank AS (
            SELECT step, rank, min(began) AS zero, max(ended) AS done,
                min(began) FILTER (phase = {literal(phase)}) AS entered,
                max(ended) FILTER (phase = {literal(phase)}) AS gone
            FROM found GROUP BY 1, 2
        ), of_step AS (
            SELECT step, {middle_of("entered - zero")} AS entering, {middle_of("gone - zero")} AS leaving,
                median(done - zero) AS took
            FROM of_rank WHERE entered IS NOT NULL GROUP BY 1
        )
        SELECT s.step, took::DOUBLE / 1e9 AS took, (greatest(0, gone - zero - leaving)
            - greatest(0, entered - zero - entering))::DOUBLE / 1e9 AS delay
        FROM of_step AS s JOIN of_rank AS r ON r.step = s.step WHERE rank = {rank} AND entered IS NOT NULL
        ORDER BY 1"""
    found = recorded.run.sql(query)
    return _Delay(Series(found["step"], found["delay"]), float(found["took"].sum()) if len(found) else 0.0)
