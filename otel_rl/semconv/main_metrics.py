"""The metrics that matter most in a run, found under each framework's own names.

`main_metrics.yaml` has them as data: topics in the order of screens, each with metrics of the registry.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.semconv import registry
from otel_rl.semconv.dialect import AttributeMap
from otel_rl.semconv.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.semconv.dialect import Reading

STEP_TIME = "time/step"
"""The wall time of a step, as otel-rl derives it: of the rank that took longest."""
Topic = Literal[
    "reward",
    "reward_components",
    "loss",
    "kl",
    "entropy",
    "gradient_norm",
    "completion_length",
    "truncated",
    "step_time",
    "tokens_per_second",
    "goodput",
    "memory_peak",
    "staleness",
    "no_signal",
    "clip_fraction",
    "evaluation",
    "log_prob_difference",
    "probability_difference",
    "sampler_kl",
    "kv_cache",
    "preemptions",
    "requests_waiting",
    "requests_running",
    "difficulty",
]
"""The quantity that a metric measures."""
Best = Literal["", "highest", "lowest"]
"""Which value of a metric is the best; empty if none is."""


_ANY_NAME = ("rl.sample.score",)
"""Metrics that a dialect reads any name under a prefix as."""


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric of the registry."""

    metric: str  # its name in the registry
    attributes: AttributeMap = {}  # attributes that a reading must have
    optional: tuple[str, ...] = ()  # further attributes that a reading may have

    def matches(self, reading: Reading) -> bool:
        """Return whether a reading is this metric with these attributes."""
        if reading.metric != self.metric:
            return False
        attributes = dict(reading.attributes)
        others = attributes.keys() - self.attributes.keys()
        return others <= set(self.optional) and all(
            attributes.get(key) == value for key, value in self.attributes.items()
        )


class MainMetric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic: the metrics that it is read from, the best first."""

    topic: Topic  # what is measured
    choices: tuple[Choice, ...] = ()  # metrics of the registry
    words: tuple[str, ...] = ()  # last components of names, for names that no dialect knows
    shapes: tuple[str, ...] = ()  # regular expressions of whole names, for names that no dialect knows
    no_shapes: str = ""  # a regular expression that such names may not have
    most: int = 1  # how many names of a run belong to it
    main: bool = True  # if true, screens show it first
    best: Best = ""  # which value is the best


class MainMetrics:
    """The main metrics of a run, and the meaning of its names.

    Attributes:
        vocabulary: The meanings of the run's names.
        by_topic: The names of each topic that the run has, in the order of screens.
    """

    def __init__(self, names: Iterable[str], framework: str = "auto") -> None:
        every = list(dict.fromkeys(names))
        self.vocabulary = Vocabulary(framework)
        self.vocabulary.learn(every)
        self.by_topic = topics([(name, self.vocabulary.read_row(name)) for name in every])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the main topics, in the order of screens."""
        main = (self.by_topic.get(entry.topic, ()) for entry in entries() if entry.main)
        return tuple(dict.fromkeys(name for names in main for name in names))

    def name(self, topic: Topic) -> str:
        """Return the name of a topic; empty if the run has none."""
        return next(iter(self.by_topic.get(topic, ())), "")

    def best(self, name: str) -> Best:
        """Return which value of a metric is the best; empty if it is unknown."""
        known = (best_of(topic) for topic, names in self.by_topic.items() if name in names)
        return next(filter(None, known), "")


@cache
def entries() -> tuple[MainMetric, ...]:
    """Return the topics, in the order in which screens show them."""
    return msgspec.yaml.decode(registry.content("main_metrics.yaml"), type=tuple[MainMetric, ...])


@cache
def best_of(topic: Topic) -> Best:
    """Return which value of a topic is the best."""
    return next(entry.best for entry in entries() if entry.topic == topic)


def topics(readings: Sequence[tuple[str, Reading | None]]) -> dict[Topic, tuple[str, ...]]:
    """Return the names of each topic that a run has, in the order of screens, given its names and what they mean."""
    named = ((entry.topic, _names(entry, readings)) for entry in entries())
    return {topic: names for topic, names in named if names}


def _names(entry: MainMetric, readings: Sequence[tuple[str, Reading | None]]) -> tuple[str, ...]:
    """Return the names of the first choice that the run has, those with the fewest attributes and characters first."""
    for choice in entry.choices:
        matching = [(name, reading) for name, reading in readings if reading is not None and choice.matches(reading)]
        if matching:
            matching.sort(key=lambda named: (len(named[1].attributes), named[1].alias, len(named[0])))
            return tuple(name for name, _ in matching[: entry.most])
    unknown = [name for name, reading in readings if reading is None or reading.metric in _ANY_NAME]
    for word in entry.words:
        of_word = sorted((name for name in unknown if _last(name) == word), key=len)
        if of_word:
            return tuple(of_word[: entry.most])
    return tuple(sorted(name for name in unknown if _has_shape(entry, name.removesuffix("/mean")))[: entry.most])


def _has_shape(entry: MainMetric, name: str) -> bool:
    if entry.no_shapes and re.search(entry.no_shapes, name, re.IGNORECASE):
        return False
    return any(re.fullmatch(shape, name, re.IGNORECASE) for shape in entry.shapes)


def _last(name: str) -> str:
    """Return the last component of a name; observations have a mean."""
    return name.removesuffix("/mean").rpartition("/")[2].rpartition(".")[2].lower()
