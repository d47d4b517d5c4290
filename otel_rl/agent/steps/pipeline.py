"""The way of records to the items that exporters get: reduce, then choose traces, then choose metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.agent.steps import admission
from otel_rl.agent.steps.naming import Reductions
from otel_rl.agent.steps.reduce import Reducer
from otel_rl.agent.steps.trace_sampling import TraceSampler
from otel_rl.agent.steps.trackers import TrackerRows
from otel_rl.export import Span
from otel_rl.semconv.vocabulary import Vocabulary
from otel_rl.stats.statistics import quantile_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.agent.steps.reduced import Reduced
    from otel_rl.agent.steps.state import State
    from otel_rl.delivery.quarantine import Quarantine
    from otel_rl.export import Item
    from otel_rl.setup.directory import Manifest


class Turn(NamedTuple):
    """The output of the reducer in a turn of the loop, and the time in Unix nanoseconds."""

    made: Reduced
    now: int


class Stage(NamedTuple):
    """A function that takes items and returns those that go on, and its name in the quarantine.

    Attributes:
        each: If true, the function gets one item at a time, so that one invalid item does not affect the others.
        passes: Returns whether an item goes on although the stage failed.
    """

    name: str
    apply: Callable[[list[Item], Turn], list[Item]]
    each: bool = False
    passes: Callable[[Item], bool] = lambda _: True


class Pipeline:
    """Turns records into items; the result depends only on the records, the state and the given times.

    Items of the reducer and of other programs go through the same stages.

    Args:
        all_spans: If true, spans that trace sampling leaves out are marked, not dropped.
    """

    def __init__(self, manifest: Manifest, state: State, quarantine: Quarantine, *, all_spans: bool) -> None:
        how = manifest.agent
        self._quarantine = quarantine
        self.vocabulary = Vocabulary(state.dialect or manifest.dialect)
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
        self.traces = TraceSampler(how.traces.ratio, self.vocabulary.phase, how.traces.budget, marks=all_spans)
        self.trackers = TrackerRows(how.rows, reductions)
        self.stages = (
            Stage("check of ids", _with_valid_ids, each=True, passes=lambda _: False),
            Stage("trace sampling", self._sampled, passes=lambda item: not isinstance(item, Span)),
            Stage("choice of metrics", self._with_chosen_metrics, each=True),
        )

    def leaving(self, items: list[Item], turn: Turn) -> list[Item]:
        """Return what exporters get of the items."""
        for stage in self.stages:
            items = self._through(stage, items, turn)
        return items

    def _through(self, stage: Stage, items: list[Item], turn: Turn) -> list[Item]:
        """Return what a stage makes of items; if it fails, the quarantine gets them, and those that may go on do."""
        leaving: list[Item] = []
        for given in [[item] for item in items] if stage.each else [items]:
            try:
                leaving += stage.apply(given, turn)
            except Exception as error:
                source, thing = (type(given[0]).__name__, given[0]) if stage.each else (f"{len(given)} items", None)
                self._quarantine.put(stage.name, source, thing, error)
                leaving += filter(stage.passes, given)
        return leaving

    def _sampled(self, items: list[Item], turn: Turn) -> list[Item]:
        return self.traces.of(items, turn.now)

    def _with_chosen_metrics(self, items: list[Item], turn: Turn) -> list[Item]:
        return self.trackers.of(items, self.reducer.state, turn.made.observed)


def _with_valid_ids(items: list[Item], _: Turn) -> list[Item]:
    for item in items:
        if isinstance(item, Span):
            admission.check_span(item)
    return items
