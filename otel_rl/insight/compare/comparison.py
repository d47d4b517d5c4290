"""The facts of a comparison: metrics, phases, what changed, where equal runs first differ, and gates."""

from __future__ import annotations

from typing import Literal

import msgspec

from otel_rl.insight.compare.difference import Method
from otel_rl.insight.compare.gates import Decision
from otel_rl.insight.facts import State

By = Literal["step", "tokens"]
"""The axis on which runs are aligned: steps, or tokens that were generated before."""
Way = Literal["better", "worse", "higher", "lower", "same"]
"""The direction of a difference; `same` if nothing certain can be said."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a side: where it is, its id and name, how many steps it has, and its state."""

    path: str
    id: str
    name: str
    steps: int
    state: State = "finished"


class MetricDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A metric on both sides.

    Attributes:
        metric: Its topic, such as `throughput`, or its name.
        name: The framework's own name of the metric on the new side.
        base: Mean of the base; the geometric one if `is_relative`.
        new: Mean of the new side.
        difference: The difference; a fraction of the base if `is_relative`, else in the metric's unit.
        low: Lower end of the 95 % interval; `None` if nothing can be concluded.
        high: Upper end of it.
        is_relative: Whether the difference is a fraction.
        way: The direction, if it is certain.
        method: What was compared.
        steps: Number of steps of each run that were compared.
        independent: Number of independent steps that say as much.
    """

    metric: str
    name: str
    base: float
    new: float
    difference: float
    low: float | None
    high: float | None
    is_relative: bool
    way: Way
    method: Method
    steps: int
    independent: float


class PhaseDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The median work of a phase in a step, in seconds, on both sides."""

    phase: str
    base: float
    new: float


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step at which a metric of two runs differs that were equal before.

    Attributes:
        step: The step.
        metric: The framework's own name of the metric; empty if reduction over ranks hides the difference.
        base: Its value in the base, reduced over ranks.
        new: The same of the new side.
        ranks: The ranks that logged other values in this step; empty if that is not known.
    """

    step: int
    metric: str = ""
    base: float | None = None
    new: float | None = None
    ranks: tuple[int, ...] = ()


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """A gate, the decision, and about how many steps it needs to decide, if that is known."""

    gate: str
    decision: Decision
    sentence: str
    needs_steps: int | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of two sides.

    Attributes:
        base: The runs of the base.
        new: The runs of the new side.
        by: The axis.
        first: The first step that was compared.
        last: The last step that was compared.
        sentences: What it says besides the gates, the most important first.
        metrics: The main metrics, and those of gates.
        phases: Phases, the one with the largest difference first.
        changes: What differs in commit, packages, machines and hyperparameters.
        first_difference: Where runs that begin equally first differ.
        gates: The decision of each gate.
    """

    base: tuple[Side, ...]
    new: tuple[Side, ...]
    by: By
    first: int
    last: int
    sentences: tuple[str, ...]
    metrics: tuple[MetricDifference, ...]
    phases: tuple[PhaseDifference, ...]
    changes: tuple[str, ...]
    first_difference: FirstDifference | None
    gates: tuple[GateResult, ...]

    @property
    def exit_code(self) -> int:
        """0 if all gates are within, 1 if one is beyond, 2 if one cannot be decided."""
        decisions = {one.decision for one in self.gates}
        return 1 if "beyond" in decisions else 2 if "unknown" in decisions else 0
