"""The use of trajectories: outcomes, staleness, the bias of dropping some, and the time of their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.analyses.consumption.outcomes import Consumption
from otel_rl.analysis import Analysis, Conclusion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.analysis import Basis, Point
    from otel_rl.recorder.agent.steps.closed import Closed


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
