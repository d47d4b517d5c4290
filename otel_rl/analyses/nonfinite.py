"""Losses and gradient norms that are not finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.analysis import Analysis
from otel_rl.export import Event
from otel_rl.recorder.agent.steps.assemble import identified
from otel_rl.recorder.journal.records import Logged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.analysis import Basis, Handler
    from otel_rl.export import AttributeValue
    from otel_rl.recorder.agent.steps.state import Journal

_VITAL_METRICS = (semconv.METRIC_TRAIN_LOSS, semconv.METRIC_TRAIN_GRADIENT_NORM)
_VITAL_NAMES = ("loss", "grad_norm", "gradient_norm")
"""Last parts of names that are losses and gradient norms in any dialect."""


class NonfiniteAnalysis(Analysis):
    """Makes an event of the first value of each metric and process that is not finite."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._known: dict[str, list[str]] = {}  # metrics that have been non-finite, by journal

    def handlers(self) -> Mapping[type, Handler]:
        """Take values."""
        return {Logged: self._log}

    def snapshot(self) -> dict[str, list[str]]:
        """Return what was reported."""
        return self._known

    def restore(self, saved: bytes) -> None:
        """Continue without reporting it again."""
        self._known = msgspec.msgpack.decode(saved, type=dict[str, list[str]])

    def _log(self, name: str, journal: Journal, record: Logged) -> list[Event]:
        # One sum for the usual case. A sum of finite values can overflow, and then the loop below finds nothing.
        if math.isfinite(sum(record.values.values())):
            return []
        known = self._known.setdefault(name, [])
        phase, rank = journal.phase_now, journal.started.rank
        events: list[Event] = []
        for metric, value in record.values.items():
            if not math.isfinite(value) and metric not in known and self._is_vital(metric):
                known.append(metric)
                attributes: dict[str, AttributeValue] = {semconv.METRIC_NAME: metric, semconv.VALUE: str(float(value))}
                attributes |= {semconv.PHASE: phase} if phase else {}
                events.append(Event(semconv.EVENT_NUMERICS_NONFINITE, record.time, attributes, record.step, rank))
        return identified(journal, *events)

    def _is_vital(self, metric: str) -> bool:
        reading = self.basis.vocabulary.read(metric)
        return metric.rpartition("/")[2] in _VITAL_NAMES if reading is None else reading.metric in _VITAL_METRICS
