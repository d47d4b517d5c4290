"""Where the time went: the time of each phase without the phases inside it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.insight.facts import PhaseShare
from otel_rl.insight.recorded import PHASE, in_sample
from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.insight.recorded import Recorded

_SAMPLED_STEPS = 48
"""Steps from which it is learned which phases are inside which others."""
_ROUNDING = 1e-6
"""Share of the time up to which sums of floats differ."""


class PhaseTimes(NamedTuple):
    """The time of phases inside steps.

    Attributes:
        seconds: Seconds of each phase without the phases inside it, over all ranks.
        total: Seconds of all steps, times the ranks.
        ranks: Number of ranks with phases.
    """

    seconds: dict[str, float]
    total: float
    ranks: int


def phase_times(recorded: Recorded) -> PhaseTimes:
    """Return the time of the trainer's ranks by phase; of all processes, if the ranks have no phases."""
    phases = [one for one in recorded.spans if one.kind == "phase"]
    of_ranks = [one for one in phases if not one.role]
    spans = of_ranks or phases
    if not spans or recorded.steps is None:
        return PhaseTimes({}, 0.0, 0)
    totals: dict[str, float] = defaultdict(float)
    for one in spans:
        totals[one.phase or ""] += one.seconds
    seconds = dict(totals)
    for (outer, inner), share in _inside(recorded, "role IS NULL" if of_ranks else "true").items():
        if outer in seconds and inner in seconds:
            seconds[outer] -= share * totals[inner]
    found = {phase: max(0.0, spent) for phase, spent in seconds.items()}
    ranks = len({(one.role, one.rank) for one in spans})
    return PhaseTimes(found, max(ranks * _step_seconds(recorded), sum(found.values())), ranks)


def shares_of(times: PhaseTimes) -> tuple[PhaseShare, ...]:
    """Return the shares of phases and of the time outside of any, the largest first; they sum to 1."""
    if not times.total:
        return ()
    none = max(0.0, times.total - sum(times.seconds.values()))
    found = [
        PhaseShare(name=name, category=category_of(name), seconds=spent / times.ranks, share=spent / times.total)
        for name, spent in times.seconds.items()
        if spent > 0
    ]
    if none > _ROUNDING * times.total:
        found.append(PhaseShare(name="", category="none", seconds=none / times.ranks, share=none / times.total))
    return tuple(sorted(found, key=lambda one: (-one.share, one.name)))


def by_category(shares: Iterable[PhaseShare]) -> Mapping[str, float]:
    """Return the share of each category."""
    found: dict[str, float] = defaultdict(float)
    for one in shares:
        found[one.category] += one.share
    return found


def _step_seconds(recorded: Recorded) -> float:
    """Return the time of all steps: of the slowest rank; without it, from the first start of a rank to the last end.

    Ranks that do not wait for each other begin a step at different times, and are in the next one before others are.
    """
    if STEP_TIME not in recorded.names:
        return sum(one.seconds for one in recorded.spans if one.kind == "step")
    query = f"""
        SELECT coalesce(sum(seconds), 0) AS seconds FROM (SELECT avg(value) AS seconds FROM rows
            WHERE name = '{STEP_TIME}' AND isfinite(value) AND {recorded.whole_steps} GROUP BY step)"""
    return float(recorded.run.sql(query)["seconds"][0])


def _inside(recorded: Recorded, who: str) -> Mapping[tuple[str, str], float]:
    """Return which share of the time of a phase is inside another one, by outer and inner phase, from some steps."""
    assert recorded.steps is not None
    first, last = recorded.steps.first, recorded.steps.last
    query = f"""
        WITH found AS (SELECT step, span_id, parent_id, phase, duration_ns, {PHASE} AS is_whole FROM spans
            WHERE phase IS NOT NULL AND {who} AND {recorded.whole_steps}
                AND {in_sample(first, last, _SAMPLED_STEPS, 3)})
        SELECT o.phase AS outside, i.phase AS inside, sum(i.duration_ns)::DOUBLE AS spent
        FROM found AS i LEFT JOIN found AS o ON i.parent_id = o.span_id AND i.step = o.step
        WHERE i.is_whole GROUP BY 1, 2"""
    found = recorded.run.sql(query)
    lines = list(zip(found["outside"].tolist(), found["inside"].tolist(), found["spent"].tolist(), strict=True))
    totals: dict[str, float] = defaultdict(float)
    for _, inner, spent in lines:
        totals[inner] += spent
    return {(outer, inner): spent / totals[inner] for outer, inner, spent in lines if outer is not None and spent}
