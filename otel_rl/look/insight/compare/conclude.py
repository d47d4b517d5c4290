"""Compares two sides: reads their metrics, tests the differences, and says what matters in sentences."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight import changed
from otel_rl.look.insight.compare.comparison import (
    Comparison,
    FirstDifference,
    GateResult,
    MetricDifference,
    PhaseDifference,
    Side,
)
from otel_rl.look.insight.compare.difference import difference
from otel_rl.look.insight.compare.sentences import sentences, size
from otel_rl.look.insight.compare.shared import all_phases, shared_by
from otel_rl.look.insight.compare.sides import STEPS_PER_SECOND, THROUGHPUT, TOPICS, Sides
from otel_rl.look.insight.phases import works
from otel_rl.look.insight.state import standing
from otel_rl.look.reader.runs import in_steps
from otel_rl.recorder.facts import wording
from otel_rl.semconv.main_metrics import STEP_TIME, best_of, entries
from otel_rl.semconv.repeatable import is_repeatable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.compare.comparison import Way
    from otel_rl.look.insight.compare.difference import Difference
    from otel_rl.look.insight.compare.gates import MetricGate
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.series import Series
    from otel_rl.look.reader.runs import RunReader

_RELATIVE = (THROUGHPUT, "step_time", "memory_peak", "memory", "tokens_per_second")
"""Metrics whose differences are fractions; those of others are in the metric's unit."""
_OF_MACHINES = (*_RELATIVE, "goodput", STEPS_PER_SECOND, STEP_TIME)
"""Metrics of which the steps of one run are enough. Two trainings differ in all others, if only by their seeds."""
_JUDGED = (*_RELATIVE, "goodput", "reward")
"""Metrics that are better or worse; of others, such as the loss of a policy or its KL divergence, more is just more."""
_DIGESTS = "SELECT step, digests FROM steps WHERE digests IS NOT NULL AND part = 0"
_SHOWN = (THROUGHPUT, *(entry.topic for entry in entries() if entry.main and entry.topic != "tokens_per_second"))


def compare(
    base: Sequence[RunReader],
    new: Sequence[RunReader],
    gates: Sequence[MetricGate] = (),
    steps: tuple[int, int] | None = None,
    *,
    by_tokens: bool = False,
) -> Comparison:
    """Return how the new side differs from the base.

    Args:
        base: The runs of the base, of `otel_rl.open_run`.
        new: The runs of the new side.
        gates: Limits for differences.
        steps: The first and the last step to compare; all by default.
        by_tokens: If true, runs are aligned by the tokens that were generated, else by steps.

    Raises:
        ValueError: The runs have no steps or no axis in common, or none has a metric of a gate.
    """
    sides = Sides(base, new, steps, by_tokens=by_tokens)
    first, last = sides.range()
    phases = _phases(sides, first, last)
    shared = shared_by(phases) if len(sides.runs) == 2 else 0.0
    all_of = ((metric, *_difference(sides, metric, shared)) for metric in _SHOWN)
    differences = {metric: (name, tested) for metric, name, tested in all_of if tested is not None}
    results = [_decided(sides, gate, shared) for gate in gates]
    metrics = tuple(_metric_difference(metric, name, tested) for metric, (name, tested) in differences.items())
    broken = [f"{text}." for metric in _SHOWN for text in _not_finite(sides, metric) if text]
    luck = [metric for metric, (name, _) in differences.items() if _is_luck(sides, metric, name)]
    are_equal, first_difference = _first_difference(sides)
    texts = sentences(metrics, phases, first_difference, luck, shared, are_equal=are_equal)
    return Comparison(
        base=tuple(map(_side, sides.base)),
        new=tuple(map(_side, sides.new)),
        by="tokens" if by_tokens else "step",
        first=first,
        last=last,
        sentences=(*broken, *texts),
        metrics=metrics,
        phases=phases,
        changes=tuple(changed.among_runs(sides.runs)),
        first_difference=first_difference,
        gates=tuple(results),
    )


def _difference(
    sides: Sides, metric: str, shared: float, *, is_relative: bool | None = None
) -> tuple[str, Difference | None]:
    name, base, new = sides.metric(metric)
    are_times = metric in _RELATIVE
    is_relative = are_times if is_relative is None else is_relative
    tested = difference(base, new, is_relative=is_relative, warm_up=are_times)
    if tested is not None and (way := _grows_with_times(metric, name)):
        tested = tested._replace(shared=way * shared if tested.is_relative else -tested.new * math.expm1(-way * shared))
    return name, tested


def _grows_with_times(metric: str, name: str) -> int:
    """Return 1 if a metric is a time of a step or a phase, -1 if it is a rate, and 0 otherwise."""
    if metric in (THROUGHPUT, "tokens_per_second") or name.endswith("_per_second"):
        return -1
    return int(name.startswith(("time/", "time_per_")))


def _decided(sides: Sides, gate: MetricGate, shared: float) -> GateResult:
    name, tested = _difference(sides, gate.metric, shared, is_relative=gate.is_relative)
    if name not in {*sides.new[-1].names, STEPS_PER_SECOND, STEP_TIME}:
        known = [metric for metric in _SHOWN if sides.metric(metric)[0]]
        near = difflib.get_close_matches(gate.metric, [*dict.fromkeys((*known, *sides.new[-1].names))], 3, 0.4)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"invalid gate {gate}: the runs have no metric {gate.metric}{hint}")
    decision = gate.decide(tested)
    of_base, of_new = _not_finite(sides, gate.metric)
    if of_new and not of_base:
        return GateResult(gate=str(gate), decision="beyond", sentence=f"{gate}: beyond, since {of_new}.")
    if tested is not None and decision != "unknown" and tested.gap and _is_luck(sides, gate.metric, name):
        sentence = f"{gate}: cannot tell with one run on each side, since seeds differ too ({size(tested)})."
        return GateResult(gate=str(gate), decision="unknown", sentence=sentence)
    needs = None
    if tested is None:
        return GateResult(
            gate=str(gate), decision=decision, sentence=f"{gate}: the runs share no two steps with {name}."
        )
    if decision == "unknown" and gate.decide(tested._replace(shared=0.0)) != "unknown":
        text = f"cannot tell with one run on each side, since {all_phases(shared)}"
    elif decision == "unknown":
        needs = tested.steps_for(gate.limit(tested))
        more = f", needs about {wording.count(needs, 'step')}" if needs else ", the difference is too near to the gate"
        if tested.method == "runs":
            more = ", needs more runs on each side"
        text = f"cannot tell with {wording.count(tested.steps, 'step')}{more}"
    else:
        text = decision
    sentence = f"{gate}: {text} ({size(tested)})."
    return GateResult(gate=str(gate), decision=decision, sentence=sentence, needs_steps=needs)


def _not_finite(sides: Sides, metric: str) -> tuple[str, str]:
    """Return in words how many values of the base, and of the new side, are NaN or infinite; nothing if none is."""
    name, base, new = sides.metric(metric)
    return _bad(name, base, "base"), _bad(name, new, "new side")


def _bad(name: str, side: Sequence[Series], which: str) -> str:
    all_of = sum(len(series.steps) for series in side)
    bad = all_of - sum(len(series.finite.steps) for series in side)
    return f"{name} is NaN or infinite in {bad:,} of {wording.count(all_of, 'step')} of the {which}" if bad else ""


def _is_luck(sides: Sides, metric: str, name: str) -> bool:
    """Return whether a difference may be that of seeds: of what a policy does, between single runs."""
    of_machine = metric in _OF_MACHINES or sides.new[-1].names.get(name, False)
    return not of_machine and min(len(sides.base), len(sides.new)) == 1


def _metric_difference(metric: str, name: str, tested: Difference) -> MetricDifference:
    low, high = tested.interval
    way: Way = "same"
    if tested.is_certain:
        is_more = tested.gap > 0
        best = best_of(TOPICS[metric]) if metric in _JUDGED else ""
        is_better = is_more == (best == "highest")
        way = ("better" if is_better else "worse") if best else "higher" if is_more else "lower"
    return MetricDifference(
        metric=metric,
        name=name,
        base=tested.base,
        new=tested.new,
        difference=tested.estimate,
        low=low if math.isfinite(low) and math.isfinite(high) else None,
        high=high if math.isfinite(low) and math.isfinite(high) else None,
        is_relative=tested.is_relative,
        way=way,
        method=tested.method,
        steps=tested.steps,
        independent=tested.independent,
    )


def _phases(sides: Sides, first: int, last: int) -> tuple[PhaseDifference, ...]:
    of_side = []
    for side in (sides.base, sides.new):
        # Without the first step, which compiles and warms up.
        seconds_of_runs = [works(run, (min(first + 1, last), last)) for run in side]
        names = {name for seconds in seconds_of_runs for name in seconds}
        of_side.append(
            {name: float(np.mean([seconds.get(name, 0.0) for seconds in seconds_of_runs])) for name in names}
        )
    base, new = of_side
    phases = [
        PhaseDifference(phase=phase, base=base.get(phase, 0.0), new=new.get(phase, 0.0)) for phase in {**base, **new}
    ]
    return tuple(sorted(phases, key=lambda phase: (-abs(phase.new - phase.base), phase.phase)))


def _first_difference(sides: Sides) -> tuple[bool, FirstDifference | None]:
    """Return whether two runs begin with equal values, and the first value after those that differs.

    Only what the trainer logged is compared, without times, rates and memory, which differ always.
    """
    if len(sides.runs) != 2:
        return False, None
    base, new = sides.runs
    logged = [name for name, measured in base.names.items() if not measured and new.names.get(name) is False]
    names = [name for name in logged if is_repeatable(name)]
    base.load(names)
    new.load(names)
    candidates: list[tuple[int, str, float, float]] = []
    begins = []
    for name in names:
        first, other = sides.within(base.series(name)), sides.within(new.series(name))
        steps, at_base, at_new = np.intersect1d(first.steps, other.steps, return_indices=True)
        before, after = first.values[at_base], other.values[at_new]
        if not len(steps):
            continue
        # NaN is not equal to itself: two runs that are both NaN do not differ.
        differs = np.flatnonzero((before != after) & ~(np.isnan(before) & np.isnan(after)))
        begins.append(int(steps[0]))
        if len(differs):
            at = int(differs[0])
            candidates.append((int(steps[at]), name, float(before[at]), float(after[at])))
    if not begins or (candidates and min(candidates)[0] <= min(begins)):
        return False, None  # other seeds: they were never equal
    of_ranks = _first_of_ranks(base, new, sides.range())
    if candidates and (of_ranks is None or min(candidates)[0] <= of_ranks[0]):
        step, name, was, now = min(candidates)
        ranks = of_ranks[1] if of_ranks is not None and of_ranks[0] == step else ()
        return True, FirstDifference(step=step, metric=name, base=was, new=now, ranks=ranks)
    return True, None if of_ranks is None else FirstDifference(step=of_ranks[0], ranks=of_ranks[1])


def _first_of_ranks(base: RecordedRun, new: RecordedRun, within: tuple[int, int]) -> tuple[int, tuple[int, ...]] | None:
    """Return the first step in which ranks logged other values than in the base, and these ranks, by their digests.

    `None` if there is no such step, if the digests differ from the start, or if runs of one rank have none.
    """
    tables = [recorded.run.sql(f"{_DIGESTS} AND {in_steps(within)}") for recorded in (base, new)]
    sides = [dict(zip(map(int, table["step"]), map(str, table["digests"]), strict=True)) for table in tables]
    steps = sorted(step for step in sides[0].keys() & sides[1].keys() if len(sides[0][step]) == len(sides[1][step]))
    first = next((step for step in steps if sides[0][step] != sides[1][step]), None)
    if first is None or first == steps[0]:
        return None
    was, now = ([text[at : at + 4] for at in range(0, len(text), 4)] for text in (side[first] for side in sides))
    return first, tuple(rank for rank, (before, other) in enumerate(zip(was, now, strict=True)) if before != other)


def _side(run: RecordedRun) -> Side:
    place = run.place
    steps = run.steps.number if run.steps else 0
    id_ = place.id or place.path.name
    name = place.name or place.path.name
    return Side(path=str(place.path), id=id_, name=name, steps=steps, state=standing(run).state)
