"""Answers what the policy wrote: the samples that were asked for, and what samples say of the run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.insight.samples.blame import blame_of, remark_of
from otel_rl.insight.samples.choose import GAP, REWARD, chosen, in_group, paired, value_of
from otel_rl.insight.samples.read import have_texts, held_by, read_samples, sampled, tabled_with
from otel_rl.insight.samples.remarks import remarks
from otel_rl.insight.samples.sample import Pair, Samples
from otel_rl.insight.samples.turns import (
    MESSAGES,
    beginning,
    containing,
    trajectories,
    with_gaps,
    with_seconds,
    with_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.archive.reader import RunReader
    from otel_rl.insight.samples.choose import Wanted
    from otel_rl.insight.samples.read import Held
    from otel_rl.insight.samples.remark import Remark
    from otel_rl.insight.samples.sample import Sample

_MOST_WITH_TOKENS = 16
"""Trajectories whose lists of tokens are read: each has up to a million numbers."""
_MOST_READ = 2_048
"""Trajectories with a text that are read, evenly spaced: their texts fit into memory."""


def samples(run: RunReader, wanted: Wanted) -> Samples:
    """Return the samples of a run that were asked for, and what samples say of it.

    Raises:
        ValueError: The run has no samples, none of that step, no trajectory of that id, or no number of that name.
    """
    held = held_by(run, [step for step in (wanted.step, wanted.other_step) if step is not None])
    every = sampled(run, held)
    if not have_texts(every):
        raise ValueError(
            "the run has no completions: record them with run.completions(…) or trajectory.message(…),"
            " and texts with init(content=True) or OTEL_RL_CONTENT=true"
        )
    said = remarks(run, every)
    some, unread = _asked(run, held, every, wanted)
    asked = chosen(some, wanted)
    _check_group(some, wanted)
    _check([*every, *some], asked, wanted)
    pairs = [Pair(sample=one) for one in asked[: wanted.most]]
    if wanted.other_step is not None:
        _check_step(held, wanted.other_step)
        pairs = paired([one.sample for one in pairs], list(read_samples(run, held.names, [wanted.other_step])))
    return Samples(
        steps=(held.steps[0], held.steps[-1]),
        tables=held.names,
        searched=len(every),
        found=len(asked) + unread,
        phrases=tuple(said.phrases),
        sentences=tuple(one.sentence for one in (*_blamed(run, wanted.step), *said.of_phrases, *said.others)),
        other_step=wanted.other_step,
        samples=tuple(_detailed(run, pairs, tokens=bool(wanted.trajectory))),
    )


def _blamed(run: RunReader, step: int | None) -> list[Remark]:
    """Return who made the loss of the step that was asked for."""
    blame = None if step is None else blame_of(run, step)
    return [remark_of(blame)] if blame and blame.stands_out else []


def _asked(run: RunReader, held: Held, every: Sequence[Sample], wanted: Wanted) -> tuple[Sequence[Sample], int]:
    """Return the samples to choose from, and how many more there are that do not fit into memory.

    They are those of a step, of the last one, or all with the text or the id that is wanted.
    """
    step = wanted.step
    if step is None and (wanted.contains or wanted.trajectory):
        if MESSAGES not in held.names:
            return list(read_samples(run, held.names, tabled_with(run, held.names, wanted.contains))), 0
        keys = beginning(run, wanted.trajectory) if wanted.trajectory else containing(run, wanted.contains)
        some = keys[:: math.ceil(len(keys) / _MOST_READ) or 1]
        read = trajectories(run, {key.step for key in some}, traces={key.trace_id for key in some})
        return [*(one for one in every if not one.turns), *read], len(keys) - len(some)
    step = held.steps[-1] if step is None else step
    _check_step(held, step)
    found = list(read_samples(run, held.names, [step]))
    return with_gaps(run, found) if wanted.by == GAP else found, 0


def _detailed(run: RunReader, pairs: Sequence[Pair], *, tokens: bool) -> Iterator[Pair]:
    """Yield pairs of samples with what is read only of those that are shown."""
    every = [one for pair in pairs for one in (pair.sample, pair.other) if one is not None]
    if any(one.turns for one in every):
        every = with_seconds(run, with_gaps(run, every))
        few = every[: _MOST_WITH_TOKENS if tokens else 0]
        every[: len(few)] = with_tokens(run, few) if few else []
    found = iter(every)
    for pair in pairs:
        yield Pair(sample=next(found), other=None if pair.other is None else next(found))


def _check_group(samples: Sequence[Sample], wanted: Wanted) -> None:
    if not samples or wanted.group is None or any(in_group(one, wanted.group) for one in samples):
        return
    known = dict.fromkeys(one.group_id or str(one.group) for one in samples if one.group_id or one.group >= 0)
    groups = wording.names(list(known), 12) or "unknown"
    raise ValueError(f"no sample is of group {wanted.group}; the groups are {groups}")


def _check_step(held: Held, step: int) -> None:
    if step not in held.steps:
        near = min(held.steps, key=lambda one: abs(one - step))
        raise ValueError(f"no completions were recorded in step {step}; the nearest step with some is {near}")


def _check(samples: Sequence[Sample], asked: Sequence[Sample], wanted: Wanted) -> None:
    if wanted.trajectory and not asked:
        raise ValueError(f"no trajectory has an id that begins with {wanted.trajectory}")
    if wanted.other_step is not None and {one.step for one in asked} == {wanted.other_step}:
        raise ValueError(f"the samples are of step {wanted.other_step} themselves: compare them with another step")
    if wanted.order not in ("best", "worst") or any(value_of(one, wanted.by) is not None for one in samples):
        return
    if wanted.by == GAP:
        raise ValueError("no sample of this step has log-probabilities of both the engine and the trainer")
    names = sorted({name for one in samples for name in one.components} | {REWARD})
    raise ValueError(f"completions have no number {wanted.by}; they have {wording.names(names, 12)}")
