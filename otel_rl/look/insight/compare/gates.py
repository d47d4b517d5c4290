"""Gates: how much worse a metric may be, and whether a difference is within that."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from otel_rl.look.insight.compare.difference import Difference

Decision = Literal["within", "beyond", "unknown"]
"""Whether the new side is certainly within a gate, certainly beyond it, or neither can be said."""
_GATE = re.compile(r"(?P<metric>.+):(?P<margin>[+-]?\d+(\.\d*)?([eE][+-]?\d+)?)(?P<percent>%?)")


class MetricGate(msgspec.Struct, frozen=True):
    """A limit for the difference of a metric."""

    metric: str  # a topic, such as `throughput`, or the name of a metric
    margin: float  # a negative one is how far the metric may fall, a positive one how far it may grow
    may_grow: bool  # if true, the metric may grow up to the margin, and fall without a limit
    is_relative: bool  # whether the margin is a fraction of the base

    def __str__(self) -> str:
        """Return the gate as it is written."""
        sign = "+" if self.may_grow else "-"
        size = abs(self.margin) * (100 if self.is_relative else 1)
        return f"{self.metric}:{sign}{size:g}{'%' if self.is_relative else ''}"

    def limit(self, difference: Difference) -> float:
        """Return the margin in the terms of a difference, which has no fraction where values are not positive."""
        return self.margin * abs(difference.base) if self.is_relative and not difference.is_relative else self.margin

    def decide(self, difference: Difference | None) -> Decision:
        """Return whether a difference is within the gate; each answer is wrong in 5 of 100 cases at most."""
        if difference is None or math.isinf(difference.error):
            return "unknown"
        least, most = difference.bounds
        limit = self.limit(difference)
        if self.may_grow:
            return "beyond" if least > limit else "within" if most <= limit else "unknown"
        return "beyond" if most < limit else "within" if least >= limit else "unknown"


def gates_of(text: str) -> list[MetricGate]:
    """Return the gates in a text such as `throughput:-3%,reward:-0.01,memory:+5%`.

    Raises:
        ValueError: A gate is not written so.
    """
    return [_gate(part.strip()) for part in text.split(",") if part.strip()]


def _gate(text: str) -> MetricGate:
    match = _GATE.fullmatch(text)
    if match is None or match["margin"][0] not in "+-":
        raise ValueError(
            f"invalid gate {text!r}: write METRIC:-3% (it may fall by 3 %), METRIC:+3% (it may grow by 3 %), "
            "or a margin without % in the metric's unit"
        )
    is_relative = bool(match["percent"])
    margin = float(match["margin"]) / (100 if is_relative else 1)
    if is_relative and not -1 < margin < 10:
        raise ValueError(f"invalid gate {text!r}: the margin must be above -100 % and below 1000 %")
    return MetricGate(match["metric"], margin, match["margin"][0] == "+", is_relative)
