"""The way of records to what exporters get: steps, reduction over ranks, choice of traces, choice of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.agent.steps import admission
from otel_rl.agent.steps.filters import Filter
from otel_rl.agent.steps.naming import Reductions
from otel_rl.agent.steps.reduce import Reducer
from otel_rl.agent.steps.trace_sampling import TraceSampler
from otel_rl.agent.steps.trackers import TrackerRows
from otel_rl.export import Span
from otel_rl.semconv.recognise import Vocabulary
from otel_rl.setup.cadence import Cadence
from otel_rl.stats.statistics import quantile_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.agent.steps.state import State
    from otel_rl.delivery.quarantine import Quarantine
    from otel_rl.export import Item
    from otel_rl.journal.segments import Position
    from otel_rl.setup.directory import Manifest


class Pipeline:
    """Makes items from records; what comes out depends on the records, the state and the times given alone.

    Args:
        manifest: How rows are made.
        state: Where to go on; without one, at the beginning.
        quarantine: Where goes what cannot be processed.

    Attributes:
        vocabulary: What the names mean.
        reducer: Makes rows and spans.
        traces: Chooses spans.
        trackers: Chooses metrics.
    """

    def __init__(self, manifest: Manifest, state: State | None, quarantine: Quarantine) -> None:
        how = manifest.agent
        self._quarantine = quarantine
        self.vocabulary = Vocabulary((state.dialect if state else "") or manifest.dialect)
        quantiles = [quantile_key(quantile) for quantile in how.rows.quantiles]
        reductions = Reductions(how.reduce, self.vocabulary.read, quantiles)
        self.reducer = Reducer(
            manifest.id,
            reductions,
            self.vocabulary,
            how.flops,
            how.rows.deadline,
            state,
            whole_world=bool(manifest.receives),
            quarantine=quarantine,
        )
        self.traces = TraceSampler(how.traces.ratio, self.vocabulary.phase, how.traces.budget)
        cadence = Cadence(how.rows.every, how.rows.first, how.rows.window)
        self.trackers = TrackerRows(cadence, Filter(how.rows.metrics), reductions, how.rows.limit)

    def leaving(self, items: Iterable[Item], place: Position, now: int, *, near_end: bool) -> list[Item]:
        """Return what exporters get of the items that were made, and of spans that were held back.

        Args:
            items: What was made.
            place: Where in the outbox what is held of it will be saved.
            now: Unix nanoseconds.
            near_end: If true, nothing is held back any more.
        """
        sampled = self._sampled(items, place, now, near_end=near_end)
        leaving: list[Item] = []
        for item in sampled:
            try:
                leaving += self.trackers.of([item], self.reducer.state, self.reducer.observed)
            except Exception as error:
                self._quarantine.put("choice of metrics", type(item).__name__, item, error)
                leaving.append(item)  # with all of its metrics
        self.reducer.observed.clear()
        return leaving

    def _sampled(self, items: Iterable[Item], place: Position, now: int, *, near_end: bool) -> list[Item]:
        guard = self._quarantine.guard
        sane: list[Item] = []
        for item in items:
            with guard("trace sampling", type(item).__name__, item):
                if isinstance(item, Span):
                    admission.check_span(item)
                sane.append(item)
        self.traces.rollouts.expect(self.reducer.take_rollouts())
        leaving: list[Item] = [item for item in sane if not isinstance(item, Span)]
        with guard("trace sampling", f"{len(sane) - len(leaving)} spans"):
            leaving = self.traces.of(sane, place, now)
        with guard("trace sampling", "spans that were held"):
            leaving += self.traces.expire(now, all_of_it=near_end)
        return leaving
