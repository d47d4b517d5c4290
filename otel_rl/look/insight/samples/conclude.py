"""Answers what the policy wrote: the samples that were asked for, and what samples say of the run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.look.insight.samples.read_samples import have_texts, held_by, read_samples, sampled, tabled_with
from otel_rl.look.insight.samples.remarks.collect import remarks
from otel_rl.look.insight.samples.remarks.loss_shares import blame_of, remark_of
from otel_rl.look.insight.samples.sample import Pair, Samples
from otel_rl.look.insight.samples.selection import GAP, REWARD, chosen, in_group, paired, value_of
from otel_rl.look.insight.samples.trajectories import (
    MESSAGES,
    beginning,
    containing,
    trajectories,
    with_gaps,
    with_seconds,
    with_tokens,
)
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.look.insight.samples.read_samples import SampleTables
    from otel_rl.look.insight.samples.remarks.remark import Remark
    from otel_rl.look.insight.samples.sample import TextSample
    from otel_rl.look.insight.samples.selection import SampleQuery
    from otel_rl.look.reader.runs import RunReader

_MOST_WITH_TOKENS = 16
"""Trajectories whose lists of tokens are read: each has up to a million numbers."""
_MOST_READ = 2_048
"""Trajectories with a text that are read, evenly spaced: their texts fit into memory."""


def samples(run: RunReader, wanted: SampleQuery) -> Samples:
    """Return the samples of a run that were asked for, and what samples say of it.

    Raises:
        ValueError: The run has no samples, none of that step, no trajectory of that id, or no number of that name.
    """
    other = wanted.other_step
    held = held_by(run, [*([wanted.steps] if wanted.steps else []), *([] if other is None else [(other, other)])])
    every = sampled(run, held)
    if not have_texts(every):
        raise ValueError(
            "the run has no completions: record them with run.completions(…) or trajectory.message(…),"
            " and texts with init(content=True) or OTEL_RL_CONTENT=true"
        )
    remarked = remarks(run, every)
    readable, unread = _asked(run, held, every, wanted)
    asked = chosen(readable, wanted)
    _check_group(readable, wanted)
    _check([*every, *readable], asked, wanted)
    pairs = [Pair(sample=sample) for sample in asked[: wanted.most]]
    if other is not None:
        _within(held, (other, other))
        pairs = paired([pair.sample for pair in pairs], list(read_samples(run, held.names, [other])))
    return Samples(
        steps=(held.steps[0], held.steps[-1]),
        tables=held.names,
        searched=len(every),
        found=len(asked) + unread,
        phrases=tuple(remarked.phrases),
        sentences=tuple(
            remark.sentence for remark in (*_blamed(run, wanted.steps), *remarked.of_phrases, *remarked.others)
        ),
        other_step=wanted.other_step,
        samples=tuple(_detailed(run, pairs, tokens=bool(wanted.trajectory))),
    )


def _blamed(run: RunReader, steps: tuple[int, int] | None) -> list[Remark]:
    """Return who made the loss of the step that was asked for."""
    blame = blame_of(run, steps[0]) if steps is not None and steps[0] == steps[1] else None
    return [remark_of(blame)] if blame and blame.stands_out else []


def _asked(
    run: RunReader, held: SampleTables, every: Sequence[TextSample], wanted: SampleQuery
) -> tuple[Sequence[TextSample], int]:
    """Return the samples to choose from, and how many more there are that do not fit into memory.

    They are those of a range of steps, of the last one, or all with the text or the id that is wanted.
    """
    if wanted.steps is None and (wanted.contains or wanted.trajectory):
        if MESSAGES not in held.names:
            return list(read_samples(run, held.names, tabled_with(run, held.names, wanted.contains))), 0
        keys = beginning(run, wanted.trajectory) if wanted.trajectory else containing(run, wanted.contains)
        few = keys[:: math.ceil(len(keys) / _MOST_READ) or 1]
        read = trajectories(run, {key.step for key in few}, traces={key.trace_id for key in few})
        return [*(sample for sample in every if not sample.turns), *read], len(keys) - len(few)
    steps = _within(held, wanted.steps or (held.steps[-1], held.steps[-1]))
    each = math.ceil(_MOST_READ / len(steps)) if len(steps) > 1 else None
    read_ones = list(read_samples(run, held.names, steps, each=each))
    return with_gaps(run, read_ones) if wanted.by == GAP else read_ones, 0


def _detailed(run: RunReader, pairs: Sequence[Pair], *, tokens: bool) -> Iterator[Pair]:
    """Yield pairs of samples with what is read only of those that are shown."""
    every = [sample for pair in pairs for sample in (pair.sample, pair.other) if sample is not None]
    if any(sample.turns for sample in every):
        every = with_seconds(run, with_gaps(run, every))
        few = every[: _MOST_WITH_TOKENS if tokens else 0]
        every[: len(few)] = with_tokens(run, few) if few else []
    detailed = iter(every)
    for pair in pairs:
        yield Pair(sample=next(detailed), other=None if pair.other is None else next(detailed))


def _check_group(samples: Sequence[TextSample], wanted: SampleQuery) -> None:
    if not samples or wanted.group is None or any(in_group(sample, wanted.group) for sample in samples):
        return
    known = dict.fromkeys(
        sample.group_id or str(sample.group) for sample in samples if sample.group_id or sample.group >= 0
    )
    groups = wording.names(list(known), 12) or "unknown"
    raise ValueError(f"no sample is of group {wanted.group}; the groups are {groups}")


def _within(held: SampleTables, steps: tuple[int, int]) -> list[int]:
    """Return the steps of a range that have samples.

    Raises:
        ValueError: There are none.
    """
    first, last = steps
    within = [step for step in held.steps if first <= step <= last]
    if not within:
        near = min(held.steps, key=lambda other: abs(other - first))
        where = f"step {first}" if first == last else f"steps {first} to {last}"
        raise ValueError(f"no completions were recorded in {where}; the nearest step with some is {near}")
    return within


def _check(samples: Sequence[TextSample], asked: Sequence[TextSample], wanted: SampleQuery) -> None:
    if wanted.trajectory and not asked:
        raise ValueError(f"no trajectory has an id that begins with {wanted.trajectory}")
    if wanted.other_step is not None and {sample.step for sample in asked} == {wanted.other_step}:
        raise ValueError(f"the samples are of step {wanted.other_step} themselves: compare them with another step")
    if wanted.order not in ("best", "worst") or any(value_of(sample, wanted.by) is not None for sample in samples):
        return
    if wanted.by == GAP:
        raise ValueError("no sample of this step has log-probabilities of both the engine and the trainer")
    names = sorted({name for sample in samples for name in sample.components} | {REWARD})
    raise ValueError(f"completions have no number {wanted.by}; they have {wording.names(names, 12)}")
