"""The load of engines and workers side by side: how many of its spans each process had open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otel_rl.view.page.packed import packed, packed_times

if TYPE_CHECKING:
    from otel_rl.archive.reader import RunReader

_PLACES = 600
_MOST_ENGINES = 64
_SPANS = """
SELECT role, coalesce(rank, 0) AS rank, start_unix_nano AS begun, start_unix_nano + duration_ns AS ended
FROM spans WHERE coalesce(role, '') <> '' AND (phase IS NOT NULL OR parent_id = '') ORDER BY role, rank
"""


def engines_of(run: RunReader, origin: int, end: int) -> dict[str, Any]:
    """Return the mean number of open spans of each process with a role, in equal parts of the run's time."""
    found = run.sql(_SPANS)
    if not len(found):
        return {"engines": []}
    begun, ended = found["begun"], found["ended"]
    keys = np.array([f"{role} {rank}" for role, rank in zip(found["role"], found["rank"], strict=True)])
    names = list(dict.fromkeys(keys.tolist()))
    edges = np.linspace(origin, max(end, origin + 1), _PLACES + 1)
    loads = {name: _load(begun[keys == name], ended[keys == name], edges) for name in names}
    kept = sorted(sorted(names, key=lambda name: -loads[name].sum())[:_MOST_ENGINES], key=names.index)
    return {
        "of": len(names),
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
