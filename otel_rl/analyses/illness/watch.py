"""Watches the main metrics of closed rows, and makes an event of each sign that the training is ill."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from otel_rl import semconv
from otel_rl.analyses.illness import facts
from otel_rl.analyses.illness.sequential import Sequential
from otel_rl.export import Event, Params, Row
from otel_rl.recorder.facts.wording import count, number
from otel_rl.semconv import registry
from otel_rl.semconv.main_metrics import topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from otel_rl.analyses.illness.sequential import Test
    from otel_rl.export import AttributeValue, Item
    from otel_rl.semconv.dialect import Reading
    from otel_rl.semconv.main_metrics import Topic
    from otel_rl.semconv.vocabulary import Vocabulary

_MOST_NAMES = 1000
"""Names of metrics that are looked at, the first ones: a name that has the step in it is a new one in each row."""
_LARGEST = 1e100
"""Sums of squares of larger numbers would not be finite."""
_BOUNDED: frozenset[Topic] = frozenset({"no_signal", "clip_fraction", "truncated"})
_NEEDED: dict[Topic, tuple[str, ...]] = {"kl": facts.KL_COEFFICIENTS, "entropy": facts.ENTROPY_COEFFICIENTS}
"""Metrics that may be constant unless one of these coefficients is above 0."""
_MAY_NOT_BE_CONSTANT: frozenset[Topic] = frozenset({"reward", "kl", "entropy"})
_SCORES = re.compile(r"score|acc|reward|pass|solve|success|win|match|correct|mean@|maj@|best@", re.IGNORECASE)
"""Names of evaluation metrics of which more is better."""
Kind = Literal[
    "rise",
    "fall",
    "burst",
    "spike",
    "regression",
    "collapse",
    "bound",
    "constant",
    "outside",
    "sum",
    "hidden_nan",
]
"""Kinds of signs: the first five are tests, the others facts."""
FALSE_ALARMS: dict[Kind, float] = {"rise": 2.0, "fall": 2.0, "burst": 1.0, "spike": 0.5, "regression": 0.5}
"""At most so many false alarms in 10,000 steps of a metric, measured by `python -m benchmarks illness`."""


class MetricTests(NamedTuple):
    """How a main metric is watched."""

    sign: Literal[1, -1]  # 1 if a rise is bad, -1 if a fall is
    tests: frozenset[Test]  # the sequential tests
    absolute: bool = False  # if true, the size of the values matters, not their sign


_SHIFT: frozenset[Test] = frozenset({"shift"})
_JUMPS: frozenset[Test] = frozenset({"burst", "spike"})
TESTS: dict[Topic, MetricTests] = {
    "reward": MetricTests(-1, _SHIFT),
    "entropy": MetricTests(-1, _SHIFT),
    "kl": MetricTests(1, _SHIFT | _JUMPS),
    "log_prob_difference": MetricTests(1, _SHIFT, absolute=True),
    "probability_difference": MetricTests(1, _SHIFT, absolute=True),
    "sampler_kl": MetricTests(1, _SHIFT, absolute=True),
    "clip_fraction": MetricTests(1, _SHIFT),
    "completion_length": MetricTests(1, _SHIFT),
    "gradient_norm": MetricTests(1, _JUMPS),
    "loss": MetricTests(1, _JUMPS),
    "no_signal": MetricTests(1, _SHIFT),
}


class Sign(NamedTuple):
    """A sign that the training is ill: what, in which metric, its value and the usual one, and a sentence."""

    kind: Kind
    metric: str
    value: float
    usual: float
    evidence: str


class _WatchedMetric:
    """A main metric of the run, and what is looked for in it."""

    def __init__(self, name: str, topic: Topic, reading: Reading | None) -> None:
        self._name, self._topic = name, topic
        self._factor = 1.0 if reading is None else reading.factor
        self._of_old = reading is not None and dict(reading.attributes).get(semconv.KL_FROM) == "old"
        watched = TESTS.get(topic)
        self._is_absolute = watched is not None and watched.absolute
        self._tests = None if watched is None else Sequential(watched.tests, watched.sign, name)
        self._constant, self._bound = facts.Constant(), facts.InARow()
        self._collapse, self._regression, self._solved = facts.Collapse(), facts.Regression(), facts.Solved()

    def add(self, step: int, value: float, known: facts.Parameters) -> Iterator[Sign]:
        """Add the value of a step; yield what is wrong with it."""
        is_solved = self._topic == "reward" and self._solved.add(value)
        is_constant = self._topic in _MAY_NOT_BE_CONSTANT and self._constant.add(value)
        if is_constant and not is_solved and self._must_vary(known):
            yield self._sign("constant", value, value, f"is exactly {number(value)} in {facts.CONSTANT_STEPS} steps")
        if self._topic == "entropy" and self._collapse.add(value):
            start = self._collapse.start
            yield self._sign(
                "collapse",
                value,
                start,
                f"is {number(value)}, below a tenth of its start of {number(start)}",
            )
        if self._topic in _BOUNDED and self._bound.add(holds=value * self._factor == 1):
            yield self._sign("bound", value, value, f"is at its maximum, {number(value)}, for {facts.STEPS} steps")
        if self._topic == "completion_length":
            most = known.number(facts.MAXIMUM_LENGTHS)
            if self._bound.add(holds=facts.is_at_maximum(value * self._factor, most)):
                yield self._sign(
                    "bound",
                    value,
                    most,
                    f"is {number(value)} of at most {number(most)} for {facts.STEPS} steps",
                )
        if self._topic == "evaluation" and (worse := self._regression.add(step, value)) is not None:
            usual, now = worse
            yield self._sign(
                "regression",
                now,
                usual,
                f"fell from {number(usual)} to {number(now)} in the last 5 evaluations",
            )
        if self._tests is not None:
            yield from self._test(abs(value) if self._is_absolute else value)

    def _test(self, value: float) -> Iterator[Sign]:
        alarm = None if self._tests is None else self._tests.add(value)
        if alarm is None:
            return
        usual, now = alarm.usual, alarm.value
        if alarm.test == "shift" and not facts.is_little(now, usual):
            kind: Kind = "rise" if now > usual else "fall"
            moved = f"{'rose' if kind == 'rise' else 'fell'} from {number(usual)} to {number(now)}"
            yield self._sign(kind, now, usual, f"{moved} within {count(alarm.values, 'step')}")
        elif alarm.test == "burst":
            since = count(alarm.values, "step")
            text = f"varies more than before since {since}: up to {number(now)}, usually {number(usual)}"
            yield self._sign("burst", now, usual, text)
        elif alarm.test == "spike":
            yield self._sign("spike", now, usual, f"was {number(now)} in one step, usually {number(usual)}")

    def _must_vary(self, known: facts.Parameters) -> bool:
        needed = _NEEDED.get(self._topic)
        return needed is None or (known.number(needed) > 0 and not self._of_old)

    def _sign(self, kind: Kind, value: float, usual: float, evidence: str) -> Sign:
        return Sign(kind, self._name, value, usual, evidence)


class Illness:
    """The watch over a run. A new agent, and each attempt, starts without the past."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._parameters = facts.Parameters()
        self._begin(0)

    def _begin(self, attempt: int) -> None:
        self._attempt, self._chosen = attempt, self._vocabulary.chosen
        self._names: dict[str, Reading | None] = {}
        self._by_topic: Mapping[Topic, tuple[str, ...]] = {}
        self._series: dict[tuple[Topic, str], _WatchedMetric] = {}
        self._fractions: dict[str, float] = {}
        self._said: set[str] = set()
        self._sum = facts.InARow()
        self._fell, self._harder = facts.Lately(), facts.Lately()
        self._levels: dict[str, float] = {}
        self._small: dict[str, Sign] = {}

    def events(self, items: Iterable[Item]) -> list[Event]:
        """Take the items of a turn; return an event for each sign of an illness."""
        events: list[Event] = []
        for item in items:
            if isinstance(item, Params):
                self._parameters.add(item.values)
            elif isinstance(item, Row) and not (item.late or item.partial) and item.attempt >= self._attempt:
                events += [_event(sign, item) for sign in self._look(item)]
        return events

    def _look(self, row: Row) -> Iterator[Sign]:
        if row.attempt > self._attempt:
            self._begin(row.attempt)
        self._learn(row)
        yield from self._without_the_harmless(row, [*self._of_main(row)])
        yield from self._outside(row)
        yield from self._reward_parts(row)
        yield from self._hidden(row)

    def _of_main(self, row: Row) -> Iterator[tuple[Topic, Sign]]:
        for topic, names in self._by_topic.items():
            for name in names:
                value = row.values.get(name)
                if value is not None and abs(value) < _LARGEST and (topic != "evaluation" or _SCORES.search(name)):
                    for sign in self._one(topic, name).add(row.step, value, self._parameters):
                        yield topic, sign

    def _without_the_harmless(self, row: Row, signs: list[tuple[Topic, Sign]]) -> Iterator[Sign]:
        """Leave out a reward that falls where tasks become harder, and a small KL of a reward that has not fallen."""
        levels = {name: row.values[name] for name in self._by_topic.get("difficulty", ()) if name in row.values}
        is_harder = self._harder.add(happens=any(one > self._levels.get(name, one) for name, one in levels.items()))
        self._levels |= levels
        falls = [sign for topic, sign in signs if topic == "reward" and sign.kind == "fall" and not is_harder]
        is_well = not self._fell.add(happens=bool(falls)) and "reward" in self._by_topic
        for topic, sign in signs:
            if topic == "kl" and sign.kind in FALSE_ALARMS and is_well and abs(sign.value) < facts.SMALL_KL:
                self._small[sign.metric] = sign
            elif topic != "reward" or sign.kind != "fall" or sign in falls:
                yield sign
        for name, sign in [*self._small.items()]:  # its test starts again, and would not see it grow on
            if abs(value := row.values.get(name, 0.0)) >= facts.SMALL_KL:
                text = f"rose from {number(sign.usual)} to {number(value)}"
                yield self._small.pop(name)._replace(value=value, evidence=text)

    def _learn(self, row: Row) -> None:
        """Find the topics of new names, and of all if another framework has been recognized."""
        fresh = [name for name in row.values if name not in self._names]
        if not fresh and self._chosen == self._vocabulary.chosen:
            return
        if self._chosen != self._vocabulary.chosen:
            self._chosen = self._vocabulary.chosen
            fresh = [*self._names, *fresh]
        elif len(self._names) >= _MOST_NAMES:
            return
        self._names |= {name: self._vocabulary.read_row(name) for name in fresh[:_MOST_NAMES]}
        self._by_topic = topics([*self._names.items()])
        self._fractions = {name: one.factor for name, one in self._names.items() if one and _is_fraction(one.metric)}

    def _one(self, topic: Topic, name: str) -> _WatchedMetric:
        known = self._series.get((topic, name))
        if known is None:
            known = self._series[topic, name] = _WatchedMetric(name, topic, self._names.get(name))
        return known

    def _outside(self, row: Row) -> Iterator[Sign]:
        for name, factor in self._fractions.items():
            value = row.values.get(name)
            if value is not None and name not in self._said and facts.is_outside(value * factor):
                self._said.add(name)
                yield Sign("outside", name, value, 1 / factor, f"is {number(value)}, but a fraction is between 0 and 1")

    def _reward_parts(self, row: Row) -> Iterator[Sign]:
        """Compare the reward with the weighted sum of its parts, where both and the weights are recorded."""
        weights = self._parameters.weights
        name = next(iter(self._by_topic.get("reward", ())), "")
        if not weights or (reward := row.values.get(name)) is None:
            return
        parts = [value for one, value in row.values.items() if _is_part(self._names.get(one))]
        total = facts.weighted_sum(parts, weights)
        if total is not None and self._sum.add(holds=facts.differs(reward, total)):
            text = f"is {number(reward)}, but the weighted sum of its {len(parts)} parts is {number(total)}"
            yield Sign("sum", name, reward, total, text)

    def _hidden(self, row: Row) -> Iterator[Sign]:
        """Say once that a loss is shown as another number where the gradient is not finite."""
        loss = next(iter(self._by_topic.get("loss", ())), "")
        norms = [row.values.get(name, 0.0) for name in self._by_topic.get("gradient_norm", ())]
        shown = row.values.get(loss, math.nan)
        is_hidden = any(not math.isfinite(norm) for norm in norms) and math.isfinite(shown)
        if is_hidden and self._parameters.number(facts.HIDES_NAN) and "" not in self._said:
            self._said.add("")
            text = f"is shown as {number(shown)} where the gradient is not finite: {facts.HIDES_NAN[0]} replaces NaN"
            yield Sign("hidden_nan", loss, shown, shown, text)


def _is_fraction(metric: str) -> bool:
    known = registry.metrics().get(metric)
    return known is not None and known.unit == "1" and metric.endswith("fraction")


def _is_part(reading: Reading | None) -> bool:
    if reading is None or reading.metric != semconv.METRIC_ENVIRONMENT_REWARD_COMPONENT:
        return False
    return dict(reading.attributes).get(semconv.STATISTIC) == "mean"


def _event(sign: Sign, row: Row) -> Event:
    attributes: dict[str, AttributeValue] = {
        semconv.ANOMALY_KIND: sign.kind,
        semconv.METRIC_NAME: sign.metric,
        semconv.ANOMALY_EVIDENCE: sign.evidence,
        semconv.ANOMALY_VALUE: float(sign.value),
        semconv.ANOMALY_USUAL: float(sign.usual),
        semconv.ANOMALY_FALSE_ALARMS: FALSE_ALARMS.get(sign.kind, 0.0),
    }
    name, at = semconv.EVENT_TRAINING_ANOMALY, row.time_unix_nano
    return Event(name, at, attributes, row.step, None, row.trace_id, row.span_id)
