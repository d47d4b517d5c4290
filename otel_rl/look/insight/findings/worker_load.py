"""How the trajectories of a role are spread over its workers, and whether that changed."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.look.insight.recorded import RecordedRun

_LEAST = 20
"""Trajectories of a role from which on its shares are known."""
_UNEVEN = 1.25
"""Times its fair share that a worker has which the others wait for."""
_MORE = 0.15
"""And how much more of all trajectories it has than before."""
_SURE = 4.0
"""Standard errors by which it has more: shares of requests that are spread at random differ, too."""
_SLOWER = 1.25
"""Times as long as before, compared with the named worker, that trajectories of a worker take which is slow itself."""
_WINDOWS = 10
"""Parts of a range whose shares are compared: requests of a group that go to one worker together count as one."""
UNEVEN_WORKERS_ADVICE = (
    "Look at how requests are spread over workers: sessions that stay where they began, or long ones on one worker."
)
"""The advice if one worker has most of the trajectories."""


class _Work(NamedTuple):
    """The trajectories that a worker began: its part of those of its role, the standard error, and how long they take.

    The time is the median of the windows' medians, in nanoseconds.
    """

    share: float
    error: float
    duration: float


def moved_work(recorded: RecordedRun, before: tuple[int, int], after: tuple[int, int]) -> str:
    """Return which worker makes a larger part of the trajectories than before, in words; empty if none does.

    A worker that became slow leaves more of them to the others: then, routing is not the reason, and nothing is said.
    """
    was, now = _works(recorded, before), _works(recorded, after)
    for role, works in now.items():
        earlier = was.get(role, {})
        if earlier.keys() != works.keys():
            continue  # the others are new, or have none: they may be stuck or gone
        most = max(works, key=lambda rank: works[rank].share)
        if _has_more(works[most], earlier[most], 1 / len(works)) and not _are_slower(works, earlier, most):
            parts = wording.percent(works[most].share), wording.percent(earlier[most].share)
            return f"{role} {most} makes {parts[0]} of the trajectories ({parts[1]} before)"
    return ""


def _has_more(now: _Work, was: _Work, fair: float) -> bool:
    """Return whether a worker has more than its share, and more than before, by more than chance."""
    gap = now.share - was.share
    return now.share >= _UNEVEN * fair and gap >= _MORE and gap > _SURE * math.hypot(now.error, was.error)


def _are_slower(now: Mapping[int, _Work], was: Mapping[int, _Work], most: int) -> bool:
    """Return whether the trajectories of another worker became slower than those of the one with most of them."""
    named = now[most].duration * _SLOWER / max(1.0, was[most].duration)
    return any(work.duration > named * was[rank].duration for rank, work in now.items() if rank != most)


def _works(recorded: RecordedRun, steps: tuple[int, int]) -> dict[str, dict[int, _Work]]:
    """Return the trajectories of a role that each of its workers began during steps."""
    first, last = steps
    counts: dict[str, dict[int, np.ndarray]] = defaultdict(lambda: defaultdict(lambda: np.zeros(_WINDOWS)))
    durations: dict[tuple[str, int], list[float]] = defaultdict(list)
    rows = recorded.run.sql(f"""
        WITH during AS (SELECT min(start_unix_nano) AS began, max(start_unix_nano + duration_ns) AS ended FROM spans
            WHERE name = '{semconv.SPAN_LOOP}' AND step BETWEEN {first} AND {last})
        SELECT role, rank, least({_WINDOWS} * (start_unix_nano - began) // greatest(ended - began, 1), {_WINDOWS - 1})
            AS part, count(*) AS number, median(duration_ns)::DOUBLE AS duration FROM spans, during
        WHERE name = '{semconv.SPAN_TRAJECTORY}' AND role IS NOT NULL AND start_unix_nano BETWEEN began AND ended
        GROUP BY ALL ORDER BY role, rank, part""")
    for role, rank, part, count, duration in lines_of(rows):
        counts[role][rank][part] = count
        durations[role, rank].append(duration)
    totals = {role: np.sum([*of_role.values()], axis=0) for role, of_role in counts.items()}
    return {
        role: {rank: _work(of_rank, totals[role], durations[role, rank]) for rank, of_rank in of_role.items()}
        for role, of_role in counts.items()
        if len(of_role) > 1 and totals[role].sum() >= _LEAST
    }


def _work(counts: np.ndarray, totals: np.ndarray, durations: list[float]) -> _Work:
    total = totals.sum()
    share = counts.sum() / total
    independent = share * (1 - share) / total
    apart = counts - share * totals
    of_windows = apart @ apart / total**2 * _WINDOWS / (_WINDOWS - 1)
    return _Work(float(share), math.sqrt(max(independent, of_windows)), float(np.median(durations)))
