"""The way of records to the items that exporters get: reduce, then choose traces, then choose metrics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from otel_rl.analysis import Basis
from otel_rl.export import Span
from otel_rl.recorder.agent.steps import admission
from otel_rl.recorder.agent.steps.analyses import Analyses, registered
from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.trace_sampling import TraceSampler
from otel_rl.recorder.agent.steps.trackers import TrackerRows, left
from otel_rl.recorder.stats.statistics import quantile_key
from otel_rl.semconv.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.export import Item
    from otel_rl.recorder.agent.steps.reduced import Reduced
    from otel_rl.recorder.agent.steps.state import Checkpoint
    from otel_rl.recorder.delivery.quarantine import Quarantine
    from otel_rl.recorder.directory.directory import Manifest


class Pipeline:
    """Turns records into items; the result depends only on the records, the state and the given times.

    Items of the reducer and of other programs go through the same stages.

    Args:
        everything: If true, spans that trace sampling leaves out are marked, not dropped.
    """

    def __init__(self, manifest: Manifest, saved: Checkpoint, quarantine: Quarantine, *, everything: bool) -> None:
        how, state = manifest.agent, saved.state
        self._quarantine = quarantine
        self.vocabulary = Vocabulary(state.dialect or manifest.dialect)
        quantiles = [quantile_key(quantile) for quantile in how.rows.quantiles]
        reductions = Reductions(how.reduce, self.vocabulary.read, quantiles, self.vocabulary.is_so_far)
        basis = Basis(state=state, vocabulary=self.vocabulary, settings=how, has_all_rows=not manifest.sends)
        self.analyses = Analyses(registered(quarantine), basis, quarantine, saved.analyses)
        self.reducer = Reducer(
            manifest.id,
            reductions,
            self.vocabulary,
            how.flops,
            how.rows.deadline,
            state,
            whole_world=bool(manifest.receives),
            quarantine=quarantine,
            analyses=self.analyses,
            messages=not manifest.sends,
            in_spans=any(name.endswith("_traces") for name, _ in manifest.exporters),  # the archive has its own table
        )
        self.traces = TraceSampler(how.traces.ratio, self.vocabulary.phase, how.traces.budget, marks=everything)
        self.trackers = TrackerRows(how.rows, reductions)

    def leaving(self, items: list[Item], made: Reduced, now: int) -> list[Item]:
        """Return what exporters get of the items.

        A stage that fails does not stop the others: the quarantine gets the items.

        Args:
            items: The items of a turn.
            made: The output of the reducer in this turn.
            now: Unix nanoseconds.
        """
        checked = self._each("check of ids", items, _with_valid_ids, if_failed=False)
        leaving: list[Item] = [item for item in checked if not isinstance(item, Span)]
        with self._quarantine.guard("trace sampling", f"{len(checked)} items"):
            leaving = self.traces.of(checked, now)
        choose = partial(self.trackers.of, state=self.reducer.state, observed=made.observed)
        return self._each("choice of metrics", leaving, choose, if_failed=True)

    def shrink(self, now: int) -> tuple[Reduced, list[Item]]:
        """Close all open steps and the window, because they are too large; return what exporters get, too."""
        made = self.reducer.close_all()
        return made, [*self.leaving(made.items, made, now), *left(self.reducer.state)]

    def _each(
        self, stage: str, items: list[Item], apply: Callable[[list[Item]], list[Item]], *, if_failed: bool
    ) -> list[Item]:
        """Return what a function makes of each item; where it fails, the item itself leaves or does not."""
        leaving: list[Item] = []
        for item in items:
            try:
                leaving += apply([item])
            except Exception as error:
                self._quarantine.put(stage, type(item).__name__, item, error)
                leaving += [item] if if_failed else []
        return leaving


def _with_valid_ids(items: list[Item]) -> list[Item]:
    for item in items:
        if isinstance(item, Span):
            admission.check_span(item)
    return items
