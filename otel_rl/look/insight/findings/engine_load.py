"""The requests of engines: how many run at once, and how evenly they are spread."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.series import EMPTY, Series
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun

_MOST_OPEN, _LEAST_OPEN = "engine/requests_open/max", "engine/requests_open/min"
_RUNNING = re.compile(r"(num_)?(requests?_running|running_(reqs|requests?))")
_NUMBER = re.compile(r"\d+")
_IDLE = 0.2
"""Part of the requests of the busiest engine below which another one is idle."""
_FEW = 4
"""Requests of the busiest engine from which on it matters that another one has none."""
UNEVEN_ADVICE = (
    "Look at how requests are spread over engines: sessions that stay where they began, or ties that one engine wins."
)
"""The advice if one engine has most of the requests."""


class Spread(NamedTuple):
    """Requests of the engine with the most, and of that with the fewest."""

    most: float
    least: float

    @property
    def is_uneven(self) -> bool:
        """Whether one engine works while another one is idle."""
        return self.most >= _FEW and self.least <= _IDLE * self.most

    @property
    def text(self) -> str:
        """Both in words."""
        return f"{wording.number(self.most)} in the busiest one, {wording.number(self.least)} in the least busy one"


class OpenRequests(NamedTuple):
    """The requests of the busiest and of the least busy engine by step, and the names of their metrics."""

    names: tuple[str, ...]
    most: Series
    least: Series

    def between(self, first: int, last: int) -> Spread:
        """Return the medians of these steps, both included."""
        return Spread(self.most.between(first, last).median, self.least.between(first, last).median)


def open_requests(recorded: RecordedRun) -> OpenRequests | None:
    """Return the load of engines, as otel-rl measured it, else as the trainer logged it; `None` without two engines."""
    if {_MOST_OPEN, _LEAST_OPEN} <= recorded.names.keys():
        return OpenRequests((_MOST_OPEN,), recorded.series(_MOST_OPEN).finite, recorded.series(_LEAST_OPEN).finite)
    names = _by_engine(recorded)
    if len(names) < 2:
        return None
    steps, values = _of_engines(recorded, names)
    return OpenRequests(names, Series(steps, values.max(axis=0)), Series(steps, values.min(axis=0)))


def running(recorded: RecordedRun) -> tuple[str, Series]:
    """Return the name of a metric, and how many requests run at once by step: of metrics of engines, the sum."""
    names = _by_engine(recorded)
    if not names:
        name, series = recorded.of_topic("requests_running")
        return (name, series.finite) if name else ("", EMPTY)
    steps, values = _of_engines(recorded, names)
    return names[0], Series(steps, values.sum(axis=0))


def _by_engine(recorded: RecordedRun) -> tuple[str, ...]:
    """Return the names under which the trainer logged the running requests of each engine: they differ in a number."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for name, measured in recorded.names.items():
        if not measured and _RUNNING.search(name):
            families[_NUMBER.sub("#", name)].append(name)
    return tuple(sorted(families.values(), key=len)[-1]) if families else ()


def _of_engines(recorded: RecordedRun, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps that all engines have, and a line of values for each engine."""
    recorded.load(names)
    series = [recorded.series(name).finite for name in names]
    steps = series[0].steps
    for each in series[1:]:
        steps = np.intersect1d(steps, each.steps)
    return steps, np.array([each.values[np.searchsorted(each.steps, steps)] for each in series])
