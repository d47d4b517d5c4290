"""The use of trajectories: outcomes, staleness, the bias of dropping some, and the time of their parts."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.analysis import Analysis, Conclusion, Point
from otel_rl.recorder.agent.steps.trajectories import each_of
from otel_rl.recorder.convert.known_names import OTHER, KnownNames
from otel_rl.recorder.journal.records import TRAINED
from otel_rl.recorder.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.analysis import Basis
    from otel_rl.recorder.agent.steps.closed import Closed
    from otel_rl.recorder.agent.steps.trajectories import ConsumedTrajectory
    from otel_rl.recorder.journal.records import Consumed

_MOST_OUTCOMES = 16
_OTHER = "other"
_LARGEST_LABEL = 16
_QUANTILES = (0.5, 0.95)
_MOST_TOOLS = 16


class Consumption:
    """Totals of the outcomes of trajectories. A new agent starts from zero."""

    def __init__(self) -> None:
        self._trajectories: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._time = TrajectoryTime()

    def add(self, records: Iterable[Consumed]) -> dict[str, float]:
        """Add the trajectories of a step; return the step's values by name.

        Staleness counts the versions between the policy that generated a token and the one that is trained on it,
        each token once, or each trajectory once if the number of tokens is unknown. A quantile is the lowest
        staleness that this share of the tokens does not exceed. A bias is the mean over dropped trajectories less
        the mean over those that were trained on.
        """
        records = list(records)
        each = [one for record in records for one in each_of(record)]
        values: dict[str, float] = {}
        for outcome in sorted({one.outcome for one in each}):
            count = sum(one.outcome == outcome for one in each)
            values[f"trajectories/{outcome}"] = count
            self._trajectories[self._label(outcome)] += count
        for one in each:
            for staleness, tokens in one.stale:
                self._tokens[self._label(one.outcome), _bucket(staleness)] += tokens
        values |= {f"trajectories/staleness/{name}": n for name, n in _staleness(each).items()}
        values |= {f"trajectories/bias/{name}": difference for name, difference in _bias(each).items()}
        return values | self._time.add(records)

    def points(self) -> list[Point]:
        """Return the trajectories and tokens so far."""
        counts = [
            Point(semconv.METRIC_TRAJECTORY_COUNT, count, ((semconv.TRAJECTORY_OUTCOME, outcome),))
            for outcome, count in self._trajectories.items()
        ]
        return counts + [
            Point(
                semconv.METRIC_TRAJECTORY_TOKENS,
                tokens,
                ((semconv.POLICY_STALENESS, staleness), (semconv.TRAJECTORY_OUTCOME, outcome)),
            )
            for (outcome, staleness), tokens in self._tokens.items()
        ]

    def _label(self, outcome: str) -> str:
        """Return the outcome if it is one of the first; a reason that contains a number must not create series."""
        return outcome if outcome in self._trajectories or len(self._trajectories) < _MOST_OUTCOMES else _OTHER


def _staleness(each: Iterable[ConsumedTrajectory]) -> dict[str, float]:
    """Return statistics of the staleness of trained trajectories, weighted by tokens."""
    parts = [part for one in each if one.outcome == TRAINED for part in one.stale]
    known = [(staleness, tokens) for staleness, tokens in parts if staleness is not None]
    weighted = [part for part in known if part[1] > 0] or [(staleness, 1) for staleness, _ in known]
    if not weighted:
        return {}
    ages, weights = zip(*sorted(weighted), strict=True)
    total = sum(weights)
    summary = {"mean": statistics.weighted_mean(ages, weights), "max": float(ages[-1])}
    for q in _QUANTILES:
        below = 0.0
        for age, weight in zip(ages, weights, strict=True):
            below += weight
            if below >= q * total:
                summary[statistics.quantile_key(q)] = float(age)
                break
    return summary


def _bias(each: Sequence[ConsumedTrajectory]) -> dict[str, float]:
    biases: dict[str, float] = {}
    quantities = {"length": [float(one.tokens) for one in each], "reward": [one.reward for one in each]}
    for name, values in quantities.items():
        given = [(one.outcome == TRAINED, value) for one, value in zip(each, values, strict=True)]
        trained = [value for was_trained, value in given if was_trained and math.isfinite(value)]
        dropped = [value for was_trained, value in given if not was_trained and math.isfinite(value)]
        if trained and dropped:
            biases[name] = statistics.mean(dropped) - statistics.mean(trained)
    return biases


def _bucket(staleness: int | None) -> str:
    if staleness is None:
        return "unknown"
    return str(staleness) if staleness < _LARGEST_LABEL else f"{_LARGEST_LABEL}+"


class TrajectoryTime:
    """The values of steps for the parts of trajectories. The first 16 tools of a run have values of their own."""

    def __init__(self) -> None:
        self._tools = KnownNames("tools", _MOST_TOOLS)

    def add(self, records: Iterable[Consumed]) -> dict[str, float]:
        """Return the values by name, over the trajectories that the step trained on or dropped.

        A fraction is the seconds of a kind divided by the duration of all trajectories that have parts.
        """
        parts: dict[str, float] = {}
        tools: dict[str, tuple[int, float, float]] = {}
        for record in records:
            for kind, seconds in record.parts.items():
                parts[kind] = parts.get(kind, 0.0) + seconds
            for name, (calls, seconds, longest) in record.tools.items():
                tool = self._label(name)
                known = tools.get(tool, (0, 0.0, 0.0))
                tools[tool] = known[0] + calls, known[1] + seconds, max(known[2], longest)
        total = sum(parts.values())
        values = {f"trajectories/time/{kind}": seconds for kind, seconds in parts.items()}
        if total:
            values |= {f"trajectories/time_fraction/{kind}": seconds / total for kind, seconds in parts.items()}
        for tool, (calls, seconds, longest) in tools.items():
            values |= {
                f"trajectories/tool/{tool}/calls": calls,
                f"trajectories/tool/{tool}/time": seconds,
                f"trajectories/tool/{tool}/longest": longest,
            }
        return values

    def _label(self, name: str) -> str:
        label = name.replace("/", ".")
        return label if label != OTHER and self._tools.admits(label) else OTHER


class ConsumptionAnalysis(Analysis):
    """Columns of each step that trained on trajectories or dropped some; and totals, 0 in each new agent."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._consumption = Consumption()

    def close(self, step: Closed, values: Mapping[str, float]) -> Conclusion:
        """Return the values of the trajectories of a step."""
        return Conclusion(self._consumption.add(step.step.consumed))

    def points(self) -> list[Point]:
        """Return the trajectories and tokens so far."""
        return self._consumption.points()
