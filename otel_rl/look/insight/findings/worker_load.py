"""How the trajectories of a role are spread over its workers, and whether that changed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun

_LEAST = 20
"""Trajectories of a role from which on its shares are known."""
_UNEVEN = 1.25
"""Times its fair share that a worker has which the others wait for."""
_MORE = 0.15
"""And how much more of all trajectories it has than before."""
UNEVEN_WORKERS_ADVICE = (
    "Look at how requests are spread over workers: sessions that stay where they began, or long ones on one worker."
)
"""The advice if one worker has most of the trajectories."""


def moved_work(recorded: RecordedRun, before: tuple[int, int], after: tuple[int, int]) -> str:
    """Return which worker makes a larger part of the trajectories than before, in words; empty if none does."""
    was, now = _shares(recorded, before), _shares(recorded, after)
    for role, shares in now.items():
        most = max(shares, key=shares.__getitem__)
        earlier = was.get(role, {}).get(most)
        if earlier is None or shares[most] < _UNEVEN / len(shares) or shares[most] < earlier + _MORE:
            continue
        parts = wording.percent(shares[most]), wording.percent(earlier)
        return f"{role} {most} makes {parts[0]} of the trajectories ({parts[1]} before)"
    return ""


def _shares(recorded: RecordedRun, steps: tuple[int, int]) -> dict[str, dict[int, float]]:
    """Return the part of the trajectories of a role that each of its workers began during steps."""
    first, last = steps
    counts: dict[str, dict[int, int]] = defaultdict(dict)
    rows = recorded.run.sql(f"""
        WITH during AS (SELECT min(start_unix_nano) AS began, max(start_unix_nano + duration_ns) AS ended FROM spans
            WHERE name = '{semconv.SPAN_LOOP}' AND step BETWEEN {first} AND {last})
        SELECT role, rank, count(*) AS number FROM spans, during
        WHERE name = '{semconv.SPAN_TRAJECTORY}' AND role IS NOT NULL AND start_unix_nano BETWEEN began AND ended
        GROUP BY role, rank ORDER BY role, rank""")
    for role, rank, count in lines_of(rows):
        counts[role][rank] = count
    return {
        role: {rank: count / total for rank, count in of_role.items()}
        for role, of_role in counts.items()
        if len(of_role) > 1 and (total := sum(of_role.values())) >= _LEAST
    }
