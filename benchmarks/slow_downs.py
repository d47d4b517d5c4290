"""How many slow-downs of simulated runs are found, how many runs without one are accused, and what could be known.

Run with `python -m benchmarks slow`: synthetic times of steps, from fixed seeds. The limit is a test that knows the
length and the correlation of the noise: its thresholds are of series with exactly these. CUSUM is that of statsmodels,
the Bayesian change points are those of `changepoint`; both need `pip install statsmodels changepoint`.
"""

from __future__ import annotations

import importlib
import math
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.level_thresholds import noise
from benchmarks.tables import Cell, Table
from otel_rl.look.insight.findings.change import LEAST
from otel_rl.look.insight.level_test import likeliest
from otel_rl.look.insight.series import Series
from otel_rl.look.insight.shifts import looked_at, shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.look.insight.series import Floats

    Detector = Callable[[Floats], bool]

RUNS, _LIVE_RUNS, _PEERS = 60, 30, 20
_NULL = 600
_CHANCE = 0.01
_USUAL_S = 40.0


class Course(NamedTuple):
    """The logarithms of the times of steps without noise, by the number of steps."""

    name: str
    levels: Callable[[int], Floats]


def step(size: float, place: float = 0.5) -> Course:
    """Return a course that is `size` slower from a part of the run on."""
    name = f"step of {size:+.0%} at {place:.0%}"
    return Course(name, lambda count: math.log1p(size) * (np.arange(count) >= place * count))


def rise(size: float) -> Course:
    """Return a course that becomes slower from the first step to the last."""
    return Course(f"rise of {size:+.0%}", lambda count: math.log1p(size) * np.linspace(0, 1, count))


def episode(size: float, steps: int) -> Course:
    """Return a course that is slower for some steps in the middle."""
    return Course(
        f"{size:+.0%} for {steps} steps",
        lambda count: math.log1p(size) * (abs(np.arange(count) - count / 2) < steps / 2),
    )


def every(period: int, factor: float) -> Course:
    """Return a course with evaluations."""
    return Course(
        f"evaluation of {factor:g} steps' time in every {period} steps",
        lambda count: math.log(1 + factor) * (np.arange(count) % period == period - 1),
    )


FLAT = Course("none", np.zeros)
STEP, RISE = step(0.2), rise(0.3)


def found(values: Floats, *, is_live: bool = False) -> bool:
    """Return whether otel-rl says that steps changed: in the end, or at any time while the run goes on."""
    series = Series(np.arange(len(values)), _USUAL_S * np.exp(values))
    if not is_live:
        return bool(shifts(series, LEAST))
    looks = sorted({looked_at(count) for count in range(16, len(values) + 1)})
    return any(shifts(series.first(count), LEAST, is_live=True) for count in looks)


def found_live(values: Floats) -> bool:
    """Return whether otel-rl says so at any time while the run goes on."""
    return found(values, is_live=True)


@cache
def limit(count: int, correlation: float, *, is_live: bool = False) -> Detector:
    """Return the test that knows the length and the correlation; `is_live`: with looks at the same steps."""
    looks = sorted({looked_at(seen) for seen in range(16, count + 1)}) if is_live else [count]
    null = noise(np.random.default_rng(9), _NULL, count, correlation)
    threshold = np.quantile(_most(null, looks), 1 - _CHANCE)
    return lambda values: bool(_most(values[None, :], looks)[0] > threshold)


def _most(values: Floats, looks: list[int]) -> Floats:
    most: Floats = np.max([likeliest(values[:, :count]).statistic for count in looks], axis=0)
    return most


def cusum(values: Floats) -> bool:
    """Return whether the sums of residuals leave their bounds; a test for independent residuals."""
    diagnostic: Any = importlib.import_module("statsmodels.stats.diagnostic")
    return bool(diagnostic.breaks_cusumolsresid(values - values.mean(), ddof=1)[1] < _CHANCE)


def bayesian(values: Floats) -> bool:
    """Return whether the likeliest run lengths have a change that is as large and lasts as long as in otel-rl."""
    changepoint: Any = importlib.import_module("changepoint")
    model = changepoint.Bocpd(changepoint.Prior.normal_gamma(0, 1, 1, 1), 250)
    scaled = (values - np.median(values)) / values.std()
    places = changepoint.map_changepoints([model.step(float(value)) for value in scaled])
    ends = [0, *(place for place in places if 8 <= place <= len(values) - 8), len(values)]
    levels = [float(np.median(values[a:b])) for a, b in pairwise(ends) if b > a]
    return any(abs(b - a) >= math.log1p(LEAST) for a, b in pairwise(levels))


def share(detector: Detector, course: Course, count: int, variation: float, correlation: float, runs: int) -> float:
    """Return the percentage of runs in which a change is found."""
    chance = np.random.default_rng(round(1000 * correlation) + count)
    lines = variation * noise(chance, runs, count, correlation) + course.levels(count)
    return 100 * sum(map(detector, lines)) / runs


def measure() -> list[Table]:
    """Return power and false alarms."""
    return [_power(), _shapes(), _nulls()]


def _power() -> Table:
    rows: list[list[Cell]] = []
    for count in (100, 300, 1000):
        for variation, correlation in ((0.05, 0.8), (0.15, 0.5), (0.15, 0.8)):
            for course in (FLAT, STEP, RISE):
                rows.append(_row(course, count, variation, correlation))
    return Table("Slow-downs that are found", _COLUMNS, rows, _NOTE)


_COLUMNS = ["course, steps, noise, ρ", "otel-rl", "limit", "while it runs", "its limit", "CUSUM", "Bayesian"]  # noqa: RUF001
_NOTE = (
    "In % of the runs. The limit: a test at 1 % that knows length and correlation. While it runs: at any look, each "
    "time that a run has a quarter more steps. Without a change: false alarms."
)


def _row(course: Course, count: int, variation: float, correlation: float) -> list[Cell]:
    setting = course, count, variation, correlation
    return [
        f"{course.name}, {count:,}, {variation:.0%}, {correlation:g}",
        share(found, *setting, RUNS),
        share(limit(count, correlation), *setting, RUNS),
        share(found_live, *setting, _LIVE_RUNS),
        share(limit(count, correlation, is_live=True), *setting, _LIVE_RUNS),
        share(cusum, *setting, _PEERS),
        share(bayesian, *setting, _PEERS),
    ]


def _shapes() -> Table:
    courses = [step(0.1), step(0.3), step(0.5), step(0.3, 0.2), step(0.3, 0.8), rise(0.6), episode(0.5, 40)]
    rows = [_row(course, 300, 0.15, correlation) for correlation in (0.8,) for course in courses]
    rows += [_row(every(20, 3.0), 300, 0.05, correlation) for correlation in (0.0, 0.5)]
    return Table("Slow-downs by size, place and shape", _COLUMNS, rows, f"{_NOTE} An evaluation is not a change.")


def _of_nulls(count: int) -> Iterator[tuple[str, Callable[[np.random.Generator], Floats]]]:
    yield "white noise", lambda chance: noise(chance, 1, count, 0.0)[0]
    yield "AR(1) 0.8", lambda chance: noise(chance, 1, count, 0.8)[0]
    yield "AR(1) 0.95", lambda chance: noise(chance, 1, count, 0.95)[0]
    yield "tails of t with 3 degrees", lambda chance: chance.standard_t(3, count) / math.sqrt(3)
    yield "noise falls to a third", lambda chance: noise(chance, 1, count, 0.8)[0] * np.linspace(1, 1 / 3, count)
    yield (
        "AR(1) 0.9 and white noise",
        lambda chance: (noise(chance, 1, count, 0.9)[0] + noise(chance, 1, count, 0.0)[0]) / math.sqrt(2),
    )
    yield "spikes of 3 times in 2 %", lambda chance: noise(chance, 1, count, 0.5)[0] + 7 * (chance.random(count) < 0.02)


def _nulls() -> Table:
    rows: list[list[Cell]] = []
    for count in (100, 300):
        for name, draw in _of_nulls(count):
            chance = np.random.default_rng(count)
            lines = [0.15 * draw(chance) for _ in range(RUNS)]
            alarms = [100 * sum(map(found, lines)) / RUNS]
            alarms += [100 * sum(map(found_live, lines[:_LIVE_RUNS])) / _LIVE_RUNS]
            of_peers = [100 * sum(map(each, lines[:_PEERS])) / _PEERS for each in (cusum, bayesian)]
            rows.append([f"{name}, {count:,}", *alarms, *of_peers])
    note = "In % of runs whose noise is 15 %. Stated for otel-rl: 1 % of AR(1) runs, all looks together."
    columns = ["noise without a change, steps", "otel-rl", "while it runs", "CUSUM", "Bayesian"]
    return Table("Runs without a change that are accused", columns, rows, note)
