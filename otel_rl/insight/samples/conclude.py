"""Answers what the policy wrote: the samples that were asked for, and the phrases that earn a reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.insight.samples.choose import REWARD, chosen, paired, value_of
from otel_rl.insight.samples.phrases import phrases
from otel_rl.insight.samples.read import held_by, read_samples
from otel_rl.insight.samples.sample import Pair, Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.reader import RunReader
    from otel_rl.insight.samples.choose import Wanted
    from otel_rl.insight.samples.read import Held
    from otel_rl.insight.samples.sample import Phrase, Sample


def samples(run: RunReader, wanted: Wanted) -> Samples:
    """Return the samples of a run that were asked for, and the phrases that earn a reward.

    Raises:
        ValueError: The run has no samples, none of that step, or no number of that name.
    """
    held = held_by(run)
    if not held.steps:
        raise ValueError(
            "the run has no completions: record them with run.completions(…), and texts with init(content=True)"
        )
    every = list(read_samples(run, held.names, held.spread()))
    found = phrases(every)
    asked = chosen(_asked(run, held, every, wanted), wanted)
    _check(every, wanted)
    shown = asked[: wanted.most]
    pairs = [Pair(sample=one) for one in shown]
    if wanted.other_step is not None:
        pairs = paired(shown, list(read_samples(run, held.names, [wanted.other_step])))
    return Samples(
        steps=(held.steps[0], held.steps[-1]),
        tables=held.names,
        total=held.lines,
        found=len(asked),
        phrases=tuple(found),
        sentences=tuple(map(sentence_of, found)),
        other_step=wanted.other_step,
        samples=tuple(pairs),
    )


def sentence_of(phrase: Phrase) -> str:
    """Return in words how a phrase spread, and what it earns."""
    component = f", mostly of {phrase.component}" if phrase.component else ""
    return (
        f'"{phrase.text}" is in {wording.percent(phrase.share)} of completions since step '
        f"{wording.integer(phrase.since)}, {wording.percent(phrase.share_before)} at first: they get a reward of "
        f"{wording.number(phrase.reward)}{component}, others {wording.number(phrase.reward_without)}."
    )


def _asked(run: RunReader, held: Held, every: Sequence[Sample], wanted: Wanted) -> Sequence[Sample]:
    """Return the samples to choose from: of a step, of the last one, or of all that fit into memory."""
    step = wanted.step
    if step is None and not wanted.contains:
        step = held.steps[-1]
    if step is None:
        return every
    if step not in held.steps:
        near = min(held.steps, key=lambda one: abs(one - step))
        raise ValueError(f"no completions were recorded in step {step}; the nearest step with some is {near}")
    return list(read_samples(run, held.names, [step]))


def _check(every: Sequence[Sample], wanted: Wanted) -> None:
    if wanted.order not in ("best", "worst") or any(value_of(one, wanted.by) is not None for one in every):
        return
    names = sorted({name for one in every for name in one.components} | {REWARD})
    raise ValueError(f"completions have no number {wanted.by}; they have {wording.names(names, 12)}")
