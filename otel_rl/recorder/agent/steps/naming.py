"""Decides how a metric is reduced, from the user's patterns and from its name."""

from __future__ import annotations

import fnmatch
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.stats import statistics
from otel_rl.recorder.stats.so_far import counts_so_far

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_rl.semconv.dialect import Reading

_OF_OBSERVATIONS = ("mean", "max", "min", "std", "sum", "count")
_OVER_RANKS = {"mean": "mean", "max": "max", "min": "min", "sum": "sum", "count": "sum", "last": "last"}
"""How scalars that are already statistics are combined; deviations and quantiles can only be averaged."""
_MOST_REMEMBERED = 20_000


class Reduction(NamedTuple):
    """How one metric is reduced: the name of the reduced value, or of several, `name/<statistic>`.

    `over_steps` is the statistic of the reduced value over several steps, if it is another one than over ranks.
    """

    name: str
    statistics: tuple[str, ...]
    over_steps: str = ""

    def targets(self, name: str) -> list[tuple[str, str]]:
        """Return the name and the statistic of each reduced value, if the metric has this name."""
        is_one = len(self.statistics) == 1
        return [(name if is_one else f"{name}/{statistic}", statistic) for statistic in self.statistics]


class Reductions:
    """The reductions of metrics over ranks, observations and steps.

    The first of these that matches decides: the user's patterns, a tag in the name (`loss@sum`), the dialect, a last
    component that is a statistic (`score/max`). Otherwise scalars are averaged, over steps unless they count so far,
    and observations give all statistics, with the given quantiles, such as "p95".
    """

    def __init__(
        self,
        patterns: Mapping[str, str | Sequence[str]],
        read: Callable[[str], Reading | None],
        quantiles: Sequence[str] = (),
        is_so_far: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._patterns = {p: (s,) if isinstance(s, str) else tuple(s) for p, s in patterns.items()}
        self._read, self._is_so_far = read, is_so_far
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
        if (reading := self._read(name)) is not None and reading.reduce:
            return Reduction(name, (reading.reduce,), reading.over_steps)
        is_so_far = component is None and (counts_so_far(name) or (reading is None and self._is_so_far(name)))
        return Reduction(name, (_OVER_RANKS.get(component or "", "mean"),), "last" if is_so_far else "")
