"""A base and several runs, each compared with it: a column each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.look.insight import changed
from otel_rl.look.insight.compare.comparison import ComparedRun
from otel_rl.look.insight.compare.conclude import compare
from otel_rl.look.insight.recorded import RecordedRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.compare.comparison import Comparison
    from otel_rl.look.insight.compare.gates import MetricGate
    from otel_rl.look.reader.runs import RunReader


def compare_each(
    base: RunReader,
    others: Sequence[RunReader],
    gates: Sequence[MetricGate] = (),
    steps: tuple[int, int] | None = None,
    *,
    by_tokens: bool = False,
) -> Comparison:
    """Return how each of the other runs differs from the base; the arguments are those of `compare`.

    Raises:
        ValueError: As in `compare`, for one of the runs.
    """
    each = [compare([base], [other], gates, steps, by_tokens=by_tokens) for other in others]
    first, *further = each
    if not further:
        return first
    runs = [RecordedRun(run) for run in (base, *others)]
    labels = changed.labels(runs)[1:]
    of_label = list(zip(labels, each, strict=True))
    return replace(
        first,
        first=max(one.first for one in each),
        last=min(one.last for one in each),
        sentences=tuple(f"{label}: {text}" for label, one in of_label for text in one.sentences),
        changes=tuple(changed.among_runs(runs)),
        first_difference=None,
        gates=tuple(
            replace(gate, sentence=f"{label}: {gate.sentence}") for label, one in of_label for gate in one.gates
        ),
        columns=tuple(ComparedRun(run=one.new[0], metrics=one.metrics, phases=one.phases) for one in further),
    )
