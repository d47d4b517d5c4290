"""Whether engines hold the weights that the trainer has of the same version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.analyses.weights.comparison import Weights
from otel_rl.analysis import Analysis, Point
from otel_rl.export import Event
from otel_rl.recorder.agent.steps.assemble import identified
from otel_rl.recorder.journal.records import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.analyses.weights.comparison import WeightsVerdict
    from otel_rl.analysis import Basis, Handler
    from otel_rl.export import AttributeValue
    from otel_rl.recorder.agent.steps.state import Journal


class WeightsAnalysis(Analysis):
    """Compares the fingerprints of weights; a new agent starts without those of earlier versions."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._weights = Weights()

    def handlers(self) -> Mapping[type, Handler]:
        """Take fingerprints."""
        return {Fingerprint: self._compare}

    def points(self) -> list[Point]:
        """Return the number of tensors that were compared so far, by the outcome."""
        return [
            Point(semconv.METRIC_WEIGHTS_COMPARED, count, ((semconv.WEIGHTS_OUTCOME, outcome),))
            for outcome, count in self._weights.counts.items()
        ]

    def _compare(self, name: str, journal: Journal, record: Fingerprint) -> list[Event]:
        """Return an event for each process of which something new is known: engines may have been faster."""
        events: list[Event] = []
        for verdict in self._weights.add(name, journal.started.attempt, record):
            process = self.basis.state.journals.get(verdict.journal, journal)
            events += identified(process, _event(process, verdict, record))
        return events


def _event(journal: Journal, verdict: WeightsVerdict, record: Fingerprint) -> Event:
    attributes: dict[str, AttributeValue] = {
        semconv.POLICY_VERSION: verdict.version,
        semconv.WEIGHTS_SIDE: verdict.side,
        semconv.WEIGHTS_TENSOR: verdict.tensor,
        semconv.WEIGHTS_DTYPE: verdict.dtype,
        semconv.WEIGHTS_VALUE: f"{verdict.value:.9g}",
        semconv.WEIGHTS_EXPECTED: f"{verdict.expected:.9g}",
        semconv.WEIGHTS_MESSAGE: verdict.message(journal.label),
    }
    if verdict.holds is not None and (verdict.is_whole or verdict.kind == "rounded"):
        attributes[semconv.WEIGHTS_HELD_VERSION] = verdict.holds
    name = semconv.EVENT_POLICY_ROUNDED
    if verdict.kind == "diverged":
        name = semconv.EVENT_POLICY_DIVERGED
        attributes |= {semconv.WEIGHTS_DIFFERING: verdict.differing, semconv.WEIGHTS_SAMPLED: verdict.compared}
    return Event(name, record.time, attributes, record.step, journal.started.rank)
