"""The load of engines and workers side by side: how many trajectories each process had open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.recorded import PHASE
from otel_rl.look.page.packed import packed, packed_times

if TYPE_CHECKING:
    from otel_rl.look.reader.runs import RunReader

_PLACES = 600
_MOST_ENGINES = 64
_WORK = f"role IS NOT NULL AND name IN ('{semconv.SPAN_ROLLOUT}', '{semconv.SPAN_TRAJECTORY}')"
_PHASES = f"role IS NOT NULL AND phase IS NOT NULL AND {PHASE}"
_SPANS = """
SELECT role || ' ' || coalesce(rank, 0) AS name, start_unix_nano AS begun, start_unix_nano + duration_ns AS ended
FROM spans WHERE {which}
"""
_MEMBERS = "SELECT DISTINCT role, rank FROM attempts WHERE role <> '' ORDER BY role, rank"


def engines_of(run: RunReader, origin: int, end: int) -> dict[str, Any]:
    """Return the mean number of open trajectories of each process with a role, in equal parts of the run's time.

    Without trajectories, it is the number of open phases.
    """
    members = run.sql(_MEMBERS)
    known = [f"{role} {rank}" for role, rank in zip(members["role"], members["rank"], strict=True)]
    spans, what = run.sql(_SPANS.format(which=_WORK)), "trajectories"
    if not len(spans):
        spans, what = run.sql(_SPANS.format(which=_PHASES)), "phases"
    begun, ended, owners = spans["begun"], spans["ended"], spans["name"].astype(str)
    names = list(dict.fromkeys([*known, *owners.tolist()]))
    edges = np.linspace(origin, max(end, origin + 1), _PLACES + 1)
    loads = {name: _load(begun[owners == name], ended[owners == name], edges) for name in names}
    kept = sorted(sorted(names, key=lambda name: -loads[name].sum())[:_MOST_ENGINES], key=names.index)
    return {
        "of": len(names),
        "what": what,
        "edges": packed_times((edges - origin) / 1e9),
        "engines": [{"name": name, "load": packed(loads[name], "f4")} for name in kept],
    }


def _load(
    begun: np.ndarray[Any, Any], ended: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return the mean number of open spans between edges."""
    spent = _past(begun, edges) - _past(ended, edges)
    return np.asarray(np.maximum(0.0, np.diff(spent) / np.diff(edges)))


def _past(times: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return at each edge the time since all times before it, summed."""
    times = np.sort(times).astype(np.float64)
    before = np.searchsorted(times, edges)
    sums = np.concatenate(([0.0], np.cumsum(times)))
    return np.asarray(edges * before - sums[before])
