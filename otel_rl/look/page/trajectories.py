"""Outcomes of trajectories: how many were trained on, and how many were dropped, by reason and step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otel_rl.look.page.packed import packed, packed_steps

if TYPE_CHECKING:
    from otel_rl.look.page.steps import StepAxis
    from otel_rl.look.reader.runs import RunReader

_POINTS = 2_000
_MOST_OUTCOMES = 8
_COUNTS = """
SELECT outcome, (step - {first}) // {every} AS place, count(*) AS number FROM trajectories
WHERE outcome IN (SELECT outcome FROM trajectories GROUP BY outcome ORDER BY count(*) DESC, outcome LIMIT {most})
GROUP BY outcome, place ORDER BY place
"""


def trajectories_of(run: RunReader, steps: StepAxis) -> list[dict[str, Any]]:
    """Return the number of trajectories of each outcome in equal ranges of steps; "trained" comes first."""
    if not len(steps.numbers):
        return []
    every = steps.every(_POINTS)
    counted = run.sql(_COUNTS.format(first=steps.first, every=every, most=_MOST_OUTCOMES))
    if not len(counted):
        return []
    outcomes, places, numbers = counted["outcome"].astype(str), counted["place"], counted["number"]
    axis = np.unique(places)
    lines = []
    for outcome in sorted(set(outcomes.tolist()), key=lambda name: (name != "trained", name)):
        chosen = outcomes == outcome
        counts = np.zeros(len(axis))
        counts[np.searchsorted(axis, places[chosen])] = numbers[chosen]
        at = packed_steps(steps.first + axis * every)
        lines.append({"name": outcome, "every": every, "steps": at, "values": packed(counts)})
    return lines
