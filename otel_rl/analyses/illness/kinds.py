"""The tests of each main metric, and how often each kind of alarm is false."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from otel_rl.analyses.illness.sequential import Test
    from otel_rl.semconv.main_metrics import Topic

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
