"""The facts of a comparison: metrics, phases, what changed, where equal runs first differ, and gates."""

from __future__ import annotations

from typing import Literal

import msgspec

from otel_rl.look.insight.compare.difference import Method
from otel_rl.look.insight.compare.gates import Decision
from otel_rl.recorder.facts.states import State

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
    """A metric on both sides."""

    metric: str  # its topic, such as `throughput`, or its name
    name: str  # the framework's own name of the metric on the new side
    base: float  # mean of the base; the geometric one if `is_relative`
    new: float  # mean of the new side
    difference: float  # the difference; a fraction of the base if `is_relative`, else in the metric's unit
    low: float | None  # lower end of the 95 % interval; `None` if nothing can be concluded
    high: float | None  # upper end of it
    is_relative: bool  # whether the difference is a fraction
    way: Way  # the direction, if it is certain
    method: Method  # what was compared
    steps: int  # number of steps of each run that were compared
    independent: float  # number of independent steps that say as much


class PhaseDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The median work of a phase in a step, in seconds, on both sides."""

    phase: str
    base: float
    new: float


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step at which a metric of two runs differs that were equal before."""

    step: int  # the step
    metric: str = ""  # the framework's own name of the metric; empty if reduction over ranks hides the difference
    base: float | None = None  # its value in the base, reduced over ranks
    new: float | None = None  # the same of the new side
    ranks: tuple[int, ...] = ()  # the ranks that logged other values in this step; empty if that is not known


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """A gate, the decision, and about how many steps it needs to decide, if that is known."""

    gate: str
    decision: Decision
    sentence: str
    needs_steps: int | None = None


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A further run that the base is compared with: its metrics and phases, as in `Comparison`."""

    run: Side
    metrics: tuple[MetricDifference, ...]
    phases: tuple[PhaseDifference, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of two sides."""

    base: tuple[Side, ...]  # the runs of the base
    new: tuple[Side, ...]  # the runs of the new side
    by: By  # the axis
    first: int  # the first step that was compared
    last: int  # the last step that was compared
    sentences: tuple[str, ...]  # what it says besides the gates, the most important first
    metrics: tuple[MetricDifference, ...]  # the main metrics, and those of gates
    phases: tuple[PhaseDifference, ...]  # phases, the one with the largest difference first
    changes: tuple[str, ...]  # what differs in commit, packages, machines and hyperparameters
    first_difference: FirstDifference | None  # where runs that begin equally first differ
    gates: tuple[GateResult, ...]  # the decision of each gate
    columns: tuple[ComparedRun, ...] = ()  # further runs that the base is compared with, one by one

    @property
    def exit_code(self) -> int:
        """0 if all gates are within, 1 if one is beyond, 2 if one cannot be decided."""
        decisions = {gate.decision for gate in self.gates}
        return 1 if "beyond" in decisions else 2 if "unknown" in decisions else 0
