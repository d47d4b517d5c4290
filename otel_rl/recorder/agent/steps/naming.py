"""Decides how a metric is reduced, from the user's patterns and from its name."""

from __future__ import annotations

import fnmatch
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_rl.semconv.dialect import Reading

_OF_OBSERVATIONS = ("mean", "max", "min", "std", "sum", "count")
_OVER_RANKS = {"mean": "mean", "max": "max", "min": "min", "sum": "sum", "count": "sum", "last": "last"}
"""How scalars that are already statistics are combined; deviations and quantiles can only be averaged."""
_MOST_REMEMBERED = 20_000


class Reduction(NamedTuple):
    """How one metric is reduced: the name of the reduced value, or of several, `name/<statistic>`."""

    name: str
    statistics: tuple[str, ...]

    def targets(self, name: str) -> list[tuple[str, str]]:
        """Return the name and the statistic of each reduced value, if the metric has this name."""
        is_one = len(self.statistics) == 1
        return [(name if is_one else f"{name}/{statistic}", statistic) for statistic in self.statistics]


class Reductions:
    """The reductions of metrics over ranks and observations.

    The first of these that matches decides: the user's patterns, a tag in the name (`loss@sum`), the dialect, a last
    component that is a statistic (`score/max`). Otherwise scalars are averaged, and observations give all statistics,
    with the given quantiles, such as "p95".
    """

    def __init__(
        self,
        patterns: Mapping[str, str | Sequence[str]],
        read: Callable[[str], Reading | None],
        quantiles: Sequence[str] = (),
    ) -> None:
        self._patterns = {p: (s,) if isinstance(s, str) else tuple(s) for p, s in patterns.items()}
        self._read = read
        self._all = (*_OF_OBSERVATIONS, *quantiles)
        self._decide_once = lru_cache(_MOST_REMEMBERED)(self._decide)

    def of(self, name: str, *, observations: bool = False) -> Reduction:
        """Return how the metric of this name is reduced."""
        return self._decide_once(name, observations)

    def forget(self) -> None:
        """Forget all decisions, because the dialect has changed."""
        self._decide_once.cache_clear()

    def _decide(self, name: str, observations: bool) -> Reduction:
        for pattern, chosen in self._patterns.items():
            if fnmatch.fnmatchcase(name, pattern):
                return Reduction(name, chosen)
        plain, tag = statistics.split_tag(name)
        if tag is not None:
            return Reduction(plain, (tag,))
        component = statistics.trailing_component(name)
        if observations:
            return Reduction(name, self._all if component is None else (component,))
        reading = self._read(name)
        return Reduction(name, ((reading.reduce if reading else "") or _OVER_RANKS.get(component or "", "mean"),))
