"""Ranks that the others wait for: which, in which phase, since when, and how much it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.delays import delays
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.recorded import in_sample
from otel_rl.look.insight.series import Series
from otel_rl.look.insight.shifts import shifts
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.processes import process_name

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedEvent, RecordedRun
    from otel_rl.recorder.facts.order import Severity

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


def straggler(recorded: RecordedRun) -> list[Finding]:
    """Return the ranks that the agent reported, those that cost most first."""
    if recorded.steps is None:
        return []
    events: dict[tuple[int, str], RecordedEvent] = {}
    for event in recorded.events_of(semconv.EVENT_STRAGGLER):
        if event.rank is not None and event.step is not None:
            events.setdefault((event.rank, str(event.attributes.get(semconv.PHASE, ""))), event)
    findings = [_finding(recorded, rank, phase, event) for (rank, phase), event in events.items()]
    costly = sorted((cost for cost in findings if cost is not None), key=lambda cost: -cost[0])
    return [finding for _, finding in costly[:_MOST]]


def _finding(recorded: RecordedRun, rank: int, phase: str, event: RecordedEvent) -> tuple[float, Finding] | None:
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
            ends = [
                shift.step for shift in shifts(after.series, seconds / 2, relative=False) if shift.after < shift.before
            ]
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
        sentence=f"{wording.capitalized(who)} made the others wait{cost}, in {phase}, {when}.",
        advice=advice if until is None else "",
        sure="likely",
        evidence=Evidence(
            steps=(since, last if until is None else until),
            ranks=(rank,),
            role=event.role,
            phases=(phase,),
            panel="waiting",
        ),
        subject=f"straggler:{process_name(event.role, rank)} in {phase}",
    )
    return share, finding


def _since(recorded: RecordedRun, rank: int, phase: str, reported: int) -> int:
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


def _delays(recorded: RecordedRun, rank: int, phase: str, first: int, last: int) -> _Delay:
    """Return the delays of a rank in steps of a range; of a long one, in some ranges inside it."""
    where = f"{recorded.whole_steps} AND {in_sample(first, last, _MOST_STEPS, 12)}"
    found = recorded.run.sql(f"""
        WITH delays AS ({delays(where)})
        SELECT step, any_value(delay) FILTER (rank = {rank}) AS delay, median(took) AS took
        FROM delays WHERE phase = {literal(phase)}
        GROUP BY step HAVING count(*) FILTER (rank = {rank}) > 0 ORDER BY step""")
    return _Delay(Series(found["step"], found["delay"]), float(found["took"].sum()) if len(found) else 0.0)
