"""How often healthy trainings are called ill, and how soon ill ones are, next to a fixed threshold.

Run with `python -m benchmarks illness`: synthetic series, from fixed seeds. The test suite runs a part of them.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.tables import Cell, Table
from otel_rl.analyses.illness.facts import Regression
from otel_rl.analyses.illness.sequential import LEAST, Sequential
from otel_rl.analyses.illness.watch import FALSE_ALARMS, Illness
from otel_rl.export import Params, Row
from otel_rl.semconv.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from otel_rl.analyses.illness.watch import Kind
    from otel_rl.export import Item

STEPS = 10_000
RUNS = 12
"""Runs of each null: 9 nulls of 12 runs of 10,000 steps are 1,080,000 clean steps."""
ILL_RUNS = 50
_ONSET, _LENGTH = 400, 900
_WINDOW, _SIGMAS = 300, 3.0


class Null(NamedTuple):
    """A series without an illness.

    Attributes:
        keeps: The coefficient of its AR(1) noise, whose standard deviation is 1.
        level: Its level, by the part of the run that has passed and by the step.
        spread: The factor on the noise, by the part of the run.
        is_heavy: If true, the noise has the tails of Student's t with 3 degrees of freedom.
        over: The series is the mean of so many of these values.
    """

    keeps: float = 0.8
    level: Callable[[float, int], float] = lambda _part, _step: 0.0
    spread: Callable[[float], float] = lambda _part: 1.0
    is_heavy: bool = False
    over: int = 1

    def values(self, seed: int, steps: int = STEPS) -> Iterator[float]:
        """Yield the values of a run."""
        dice, noise = random.Random(seed), 0.0
        last = deque[float](maxlen=self.over)
        for step in range(steps):
            shock = dice.gauss(0, 1)
            if self.is_heavy:
                shock /= math.sqrt(sum(dice.gauss(0, 1) ** 2 for _ in range(3)))  # t / √3, whose variance is 1
            noise = self.keeps * noise + math.sqrt(1 - self.keeps**2) * shock
            part = step / steps
            last.append(self.level(part, step) + self.spread(part) * noise)
            yield fmean(last) if self.over > 1 else last[0]


NULLS = {
    "white noise": Null(0.0),
    "AR(1) 0.8": Null(),
    "AR(1) 0.95": Null(0.95),
    "tails of t with 3 degrees": Null(is_heavy=True),
    "mean of the last 100": Null(0.0, over=100),
    "rise of 1,000 sd over the run": Null(level=lambda part, _: 1000 * part),
    "rise of 10 sd over the run": Null(level=lambda part, _: 10 * part),
    "fall of 10 sd over the run": Null(level=lambda part, _: -10 * part),
    "noise falls to a third": Null(spread=lambda part: 3 - 2 * part),
    "warm-up from 20 sd": Null(level=lambda _, step: 20 * math.exp(-step / 50)),
    "three levels of a curriculum": Null(level=lambda part, _: 2.0 * (0.25 < part <= 0.5 or part > 0.75)),
}


def alarms(values: Iterable[float]) -> Counter[Kind]:
    """Return the alarms of a series that is watched for rises and for falls, as one metric each."""
    found: Counter[Kind] = Counter()
    rises = Sequential(frozenset({"shift", "burst", "spike"}), 1, "rises")
    falls = Sequential(frozenset({"shift"}), -1, "falls")
    watched: tuple[tuple[Sequential, Kind], ...] = ((rises, "rise"), (falls, "fall"))
    for value in values:
        for one, kind in watched:
            alarm = one.add(value)
            if alarm is not None:
                found[kind if alarm.test == "shift" else alarm.test] += 1
    return found


def regressions(values: Iterable[float]) -> int:
    """Return how often evaluations, one in 25 steps, are said to have become worse."""
    one = Regression()
    return sum(one.add(step, value) is not None for step, value in enumerate(values))


class Ill(NamedTuple):
    """An illness: the values of a step, with TRL's names, from its onset on, and what should be said of which metric.

    Attributes:
        metric: The metric that shows it.
        value: Its value, by the steps since the onset (negative before), and noise of standard deviation 1.
        sign: 1 if a fixed threshold looks for a rise, -1 for a fall.
        parameters: Hyperparameters.
        others: Further values, by the noise.
        every: The metric has a value in each of so many steps.
    """

    metric: str
    value: Callable[[int, float], float]
    sign: int = 1
    parameters: dict[str, float] = {}  # noqa: RUF012 - never changed
    others: Callable[[float], dict[str, float]] = lambda _noise: {}
    every: int = 1


def _after(since: int, over: int = 1) -> float:
    return min(1.0, max(0.0, since / over))


ILLNESSES = {
    "reward falls within 50 steps": Ill("reward", lambda t, e: 0.6 - 0.5 * _after(t, 50) + 0.05 * e, -1),
    "reward falls over 500 steps": Ill("reward", lambda t, e: 0.6 - 0.5 * _after(t, 500) + 0.05 * e, -1),
    "reward is stuck at 0": Ill("reward", lambda t, e: 0.0 if t >= 0 else 0.6 + 0.05 * e, -1),
    "entropy collapses over 100 steps": Ill("entropy", lambda t, e: (0.8 + 0.03 * e) * (1 - 0.98 * _after(t, 100)), -1),
    "KL drifts up over 200 steps": Ill("kl", lambda t, e: 0.02 + 0.1 * _after(t, 200) + 0.004 * e),
    "KL explodes": Ill("kl", lambda t, e: 0.02 * math.exp(min(8, max(0, t) / 5)) + 0.002 * e),
    "KL is not computed": Ill("kl", lambda t, e: 0.02 if t >= 0 else 0.02 + 0.004 * e, 1, {"beta": 0.04}),
    "engine and trainer differ": Ill(
        "sampling/sampling_logp_difference/mean", lambda t, e: 0.01 + 0.02 * (t >= 0) + 0.002 * e
    ),
    "clipping doubles within 30 steps": Ill(
        "clip_ratio/region_mean", lambda t, e: 0.1 + 0.1 * _after(t, 30) + 0.02 * e
    ),
    "lengths grow three times in 100 steps": Ill(
        "completions/mean_length", lambda t, e: 400 + 800 * _after(t, 100) + 40 * e
    ),
    "lengths reach the maximum": Ill(
        "completions/mean_length",
        lambda t, e: min(1024, 400 + 1000 * _after(t, 20) + 40 * e),
        1,
        {"max_completion_length": 1024},
    ),
    "gradient norm: one spike": Ill("grad_norm", lambda t, e: 100.0 if t == 0 else 1 + 0.2 * e),
    "gradient norm becomes unsteady": Ill("grad_norm", lambda t, e: 1 + (0.2 if t < 0 else 0.8) * e),
    "loss: a spike in every 10 steps": Ill("loss", lambda t, e: 0.05 * e + (2.0 if t >= 0 and t % 10 == 0 else 0)),
    "no group has a signal": Ill(
        "frac_reward_zero_std", lambda t, e: min(1, max(0, 0.4 + 0.9 * _after(t, 40) + 0.1 * e))
    ),
    "evaluations become worse": Ill("eval_reward", lambda t, e: 0.7 - 0.2 * (t >= 0) + 0.02 * e, -1, every=25),
    "a fraction is in percent": Ill("clip_ratio/region_mean", lambda t, e: (100 if t >= 0 else 1) * (0.1 + 0.01 * e)),
    "reward is not the sum of its parts": Ill(
        "reward",
        lambda t, e: 0.5 + 0.05 * e + (0.3 if t >= 0 else 0),
        1,
        {"reward_weights.0": 1.0},
        lambda e: {"rewards/a/mean": 0.5 + 0.05 * e},
    ),
    "a filter hides NaN": Ill(
        "grad_norm",
        lambda t, e: math.nan if t == 0 else 1 + 0.2 * e,
        1,
        {"logging_nan_inf_filter": 1.0},
        lambda _: {"loss": 0.1},
    ),
}


def _noise(ill: Ill, seed: int) -> Iterator[tuple[int, float]]:
    """Yield the steps of a run with the noise of each, which is AR(1) with 0.5."""
    dice, noise = random.Random(seed), 0.0
    for step in range(_LENGTH):
        noise = 0.5 * noise + math.sqrt(0.75) * dice.gauss(0, 1)
        if step % ill.every == 0:
            yield step, noise


def series_of(ill: Ill, seed: int) -> Iterator[tuple[int, float]]:
    """Yield the steps and values of an ill run."""
    return ((step, ill.value(step - _ONSET, noise)) for step, noise in _noise(ill, seed))


def found_after(ill: Ill, seed: int) -> int | None:
    """Return after how many steps an event is made since the onset; `None` if there is none, or one before."""
    illness = Illness(Vocabulary("trl"))
    illness.events([Params(0, {**ill.parameters})])
    for step, noise in _noise(ill, seed):
        row: Item = Row(step, 0, {**ill.others(noise), ill.metric: ill.value(step - _ONSET, noise)})
        if illness.events([row]):
            return None if step < _ONSET else step - _ONSET
    return None


def fixed_alarms(values: Iterable[tuple[int, float]], sign: int = 1) -> Iterator[int]:
    """Yield the steps in which a fixed threshold is crossed: 3 standard deviations from the mean of the last 300."""
    past, before = deque[float](maxlen=_WINDOW), False
    total = square = 0.0
    for step, value in values:
        if not math.isfinite(value):
            continue
        if len(past) >= LEAST:
            middle = total / len(past)
            spread = math.sqrt(max(0.0, square / len(past) - middle * middle))
            now = sign * (value - middle) > _SIGMAS * spread > 0
            if now and not before:
                yield step
            before = now
        if len(past) == _WINDOW:
            total, square = total - past[0], square - past[0] ** 2
        past.append(value)
        total, square = total + value, square + value * value


def measure() -> list[Table]:
    """Return the rates and delays."""
    return [_rates(), _delays()]


def _rates() -> Table:
    rows: list[list[Cell]] = []
    for name, null in NULLS.items():
        found: Counter[Kind] = Counter()
        worse = fixed = 0
        for seed in range(RUNS):
            found += alarms(null.values(seed))
            worse += regressions(null.values(seed))
            fixed += sum(1 for _ in fixed_alarms(enumerate(null.values(seed))))
        per = RUNS * STEPS / 10_000
        kinds: tuple[Kind, ...] = ("rise", "fall", "burst", "spike")
        rows.append([name, *(found[kind] / per for kind in kinds), None if null.over > 1 else worse / per, fixed / per])
    rows.append(["stated", *FALSE_ALARMS.values(), None])
    note = (
        f"In 10,000 steps of one metric, of {len(NULLS) * RUNS * STEPS:,}. Levels of a curriculum are real changes. "
        "Evaluations are 25 steps apart, and not means over steps. "
        "Fixed: 3 standard deviations above the mean of the last 300 values."
    )
    columns = ["clean series", "rise", "fall", "burst", "spike", "regression", "fixed"]
    return Table("False alarms of healthy trainings", columns, rows, note)


def _delays() -> Table:
    rows: list[list[Cell]] = []
    for name, ill in ILLNESSES.items():
        told = [after for seed in range(ILL_RUNS) if (after := found_after(ill, seed)) is not None]
        first = [next(fixed_alarms(series_of(ill, seed), ill.sign), None) for seed in range(ILL_RUNS)]
        fixed = [step - _ONSET for step in first if step is not None and step >= _ONSET]
        rows.append([name, len(told), median(told) if told else None, len(fixed), median(fixed) if fixed else None])
    note = f"{ILL_RUNS} runs each, ill from step {_ONSET}; a run with an alarm before is not found."
    columns = ["illness", f"found of {ILL_RUNS}", "after steps (median)", "fixed: found", "fixed: after steps"]
    return Table("Ill trainings", columns, rows, note)
