"""Where the time went: the own time of each phase, the time outside of any, and the time that the run hung."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.facts import PhaseShare
from otel_rl.look.insight.own_times import IN_STEPS, own_ns, time_within
from otel_rl.look.insight.recorded import in_sample
from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.facts.goodput import HUNG
from otel_rl.recorder.facts.own_time import closed
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.look.insight.recorded import RecordedRun

_NS = 1e9
_ROUNDING = 1e-6
"""Share of the time up to which sums of floats differ."""
_MOST_STEPS = 128
"""Steps of a range whose work is looked at, so that a long run is read as fast as a short one."""
TOGETHER = 0.25
"""Part of the difference before within which ranks that waited for each other are together."""

_PHASE_TIME = "rl.phase.time"


class PhaseTimes(NamedTuple):
    """The time of processes in steps, over all of them: own seconds by phase, without a name outside of any."""

    seconds: dict[str, float]
    hung: float  # seconds in which no rank made progress; they count as hung, not as those of a phase
    ranks: int  # number of processes with phases

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self.seconds.values()) + self.hung


def phase_times(recorded: RecordedRun) -> PhaseTimes:
    """Return the time of the trainer's ranks by phase; of all processes, if the ranks have no phases."""
    if recorded.steps is None:
        return PhaseTimes({}, 0.0, 0)
    spans = f"{IN_STEPS} AND {recorded.whole_steps}"
    own = own_ns(recorded.run, spans)
    # Without a role, rows come first.
    by_phase = recorded.run.sql(f"""SELECT role IS NOT NULL AS has_role, phase, sum({own})::DOUBLE / {_NS} AS seconds
        FROM spans WHERE {spans} GROUP BY ALL ORDER BY 1, 2""")
    if not len(by_phase):
        return PhaseTimes({}, 0.0, 0)
    has_role = bool(by_phase["has_role"][0])
    spans += "" if has_role else " AND role IS NULL"
    phases = zip(by_phase["phase"].tolist(), by_phase["seconds"].tolist(), by_phase["has_role"].tolist(), strict=True)
    seconds = {phase: spent for phase, spent, of_role in phases if of_role == has_role}
    who = "(coalesce(role, ''), coalesce(rank, 0))"
    ranks = recorded.run.sql(f"SELECT count(DISTINCT {who}) AS n FROM spans WHERE {spans}")
    number = int(ranks["n"][0])
    total = _seconds_of_steps(recorded, spans, who)
    hung = 0.0
    for hang in recorded.hung:
        for (_, phase), nanoseconds in time_within(recorded.run, spans, hang).items():
            if phase:
                seconds[phase] = max(0.0, seconds.get(phase, 0.0) - nanoseconds / _NS)
            hung += nanoseconds / _NS
    return PhaseTimes(closed(seconds.items(), total - hung), hung, number)


def shares_of(times: PhaseTimes) -> tuple[PhaseShare, ...]:
    """Return the shares of phases, of the time outside of any and of hangs, the largest first; they sum to 1."""
    total = times.total
    spent = [(name, category_of(name) if name else "none", seconds) for name, seconds in times.seconds.items()]
    shares = [
        PhaseShare(name=name, category=category, seconds=seconds / times.ranks, share=seconds / total)
        for name, category, seconds in (*spent, (HUNG, "hung", times.hung))
        if seconds > _ROUNDING * total
    ]
    return tuple(sorted(shares, key=lambda share: (-share.share, share.name)))


def by_category(shares: Iterable[PhaseShare]) -> Mapping[str, float]:
    """Return the share of each category."""
    seconds: dict[str, float] = defaultdict(float)
    for share in shares:
        seconds[share.category] += share.share
    return seconds


def works(recorded: RecordedRun, steps: tuple[int, int]) -> dict[str, float]:
    """Return the median over steps of the own seconds that a step spends on each phase: those of the slowest rank.

    Args:
        recorded: The run.
        steps: The first and the last step; of many, three ranges inside are looked at.
    """
    seconds = recorded.run.sql(f"""
        WITH {_of_ranks(recorded, steps)}, of_step AS (SELECT step, phase, max(work) AS work FROM of_ranks GROUP BY ALL)
        SELECT phase, median(work) AS seconds, count(*) AS n, (SELECT count(DISTINCT step) FROM of_step) AS steps
        FROM of_step GROUP BY phase ORDER BY phase""")
    # Without an evaluation or a checkpoint of few steps.
    return {phase: took for phase, took, number, whole in lines_of(seconds) if number * 2 > whole}


def works_of_ranks(recorded: RecordedRun, steps: tuple[int, int], phase: str) -> dict[int, float]:
    """Return the median over steps of the own seconds of each rank in a phase; the arguments are those of `works`."""
    seconds = recorded.run.sql(f"""
        WITH {_of_ranks(recorded, steps)} SELECT rank, median(work) FROM of_ranks
        WHERE phase = {literal(phase)} GROUP BY rank ORDER BY rank""")
    return dict(lines_of(seconds))


def _of_ranks(recorded: RecordedRun, steps: tuple[int, int]) -> str:
    """Return the table `of_ranks` in SQL: the own seconds of each rank in each phase, without waits for other ranks.

    Where all ranks leave a phase together, the one that entered last did not wait: its time is the work of each.
    """
    spans = f"{IN_STEPS} AND role IS NULL AND {recorded.whole_steps} AND {in_sample(*steps, _MOST_STEPS, 3)}"
    return f"""own AS (
            SELECT step, rank, phase, sum({own_ns(recorded.run, spans)})::DOUBLE / {_NS} AS took,
                max(start_unix_nano + duration_ns) AS ended
            FROM spans WHERE {spans} GROUP BY 1, 2, 3
        ), of_ranks AS (
            SELECT step, rank, phase, CASE WHEN count(*) OVER ranks > 1
                AND (max(ended) OVER ranks - min(ended) OVER ranks) / {_NS}
                    < {TOGETHER} * (max(took) OVER ranks - min(took) OVER ranks)
                THEN min(took) OVER ranks ELSE took END AS work
            FROM own WINDOW ranks AS (PARTITION BY step, phase)
        )"""


def _seconds_of_steps(recorded: RecordedRun, spans: str, who: str) -> float:
    """Return the time of all steps, times the processes that have phases in them."""
    steps = recorded.run.sql(f"SELECT step, count(DISTINCT {who}) AS n FROM spans WHERE {spans} GROUP BY 1 ORDER BY 1")
    times = recorded.step_times.finite
    if not times:
        return 0.0
    numbers, places = np.unique(times.steps), np.searchsorted(times.steps, steps["step"])
    known = np.isin(steps["step"], numbers)
    # The archive may have a row for every tenth step only: the others take as long on average.
    seconds = np.where(known, times.values[np.minimum(places, len(times.values) - 1)], times.mean)
    return float(seconds @ np.asarray(steps["n"], np.float64))


def logged_phases(recorded: RecordedRun) -> list[str]:
    """Return the names of metrics that the trainer logged with times of phases, such as `timing_s/gen`."""
    read = recorded.main.vocabulary.read
    names = []
    for name, measured in recorded.names.items():
        reading = None if measured else read(name)
        if reading is not None and (reading.metric, reading.factor) == (_PHASE_TIME, 1.0):
            names += [name] if dict(reading.attributes).get(semconv.PHASE) not in (None, "step") else []
    return names
