"""The tests of each main metric, and how often each kind of alarm is false."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from otel_rl.agent.analysis.illness.sequential import Test
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


class Watched(NamedTuple):
    """How a main metric is watched.

    Attributes:
        sign: 1 if a rise is bad, -1 if a fall is.
        tests: The sequential tests.
        absolute: If true, the size of the values matters, not their sign.
    """

    sign: Literal[1, -1]
    tests: frozenset[Test]
    absolute: bool = False


_SHIFT: frozenset[Test] = frozenset({"shift"})
_JUMPS: frozenset[Test] = frozenset({"burst", "spike"})
TESTS: dict[Topic, Watched] = {
    "reward": Watched(-1, _SHIFT),
    "entropy": Watched(-1, _SHIFT),
    "kl": Watched(1, _SHIFT | _JUMPS),
    "log_prob_difference": Watched(1, _SHIFT, absolute=True),
    "probability_difference": Watched(1, _SHIFT, absolute=True),
    "sampler_kl": Watched(1, _SHIFT, absolute=True),
    "clip_fraction": Watched(1, _SHIFT),
    "completion_length": Watched(1, _SHIFT),
    "gradient_norm": Watched(1, _JUMPS),
    "loss": Watched(1, _JUMPS),
    "no_signal": Watched(1, _SHIFT),
}
