"""The samples of a run that say the most: extremes of some steps, and the same prompts in each of these steps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from otel_rl.look.insight.samples.read_samples import have_texts, held_by, read_samples
from otel_rl.look.insight.samples.selection import GAP, SampleQuery, chosen, prompt_of
from otel_rl.look.insight.samples.trajectories import evenly, with_gaps, with_seconds, with_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from otel_rl.look.insight.samples.sample import TextSample
    from otel_rl.look.reader.runs import RunReader

_EVEN_STEPS, _MARKED_STEPS = 6, 6
"""Steps that are read: evenly spaced ones, the first and the last among them, and the ones next to those marked."""
_PROMPTS = 3
"""Prompts that are followed through the steps."""
_EXTREMES = (
    (SampleQuery(order="best"), 2),
    (SampleQuery(order="worst"), 2),
    (SampleQuery(order="best", by=GAP), 2),
    (SampleQuery(order="longest"), 1),
)
"""The orders whose first samples are taken of each step, and how many."""


def highlights(run: RunReader, marked: Iterable[int] = ()) -> list[TextSample]:
    """Return samples with their tokens, in the order of the steps; `marked` are steps of which some are wanted."""
    near = list(marked)[:_MARKED_STEPS]
    held = held_by(run, [(step, step) for step in near])
    steps = _steps(held.steps, near)
    read = with_gaps(run, list(read_samples(run, held.names, steps)))
    if not have_texts(read):
        return []
    of_step = {step: [sample for sample in read if sample.step == step] for step in steps}
    times = Counter(
        prompt for samples in of_step.values() for prompt in {prompt_of(sample) for sample in samples} if prompt
    )
    followed = {prompt for prompt, number in times.most_common(_PROMPTS) if number > 1}
    shown = [sample for samples in of_step.values() for sample in _of_step(samples, followed)]
    return with_tokens(run, with_seconds(run, shown))


def _steps(steps: Sequence[int], marked: Iterable[int]) -> list[int]:
    if not steps:
        return []
    near = [min(steps, key=lambda step: abs(step - mark)) for mark in marked]
    return sorted({*evenly(steps, _EVEN_STEPS), *near})


def _of_step(samples: Sequence[TextSample], followed: Collection[str]) -> list[TextSample]:
    """Return the extremes of a step, and the first sample of each prompt that is followed, in their order."""
    taken = [sample for wanted, most in _EXTREMES for sample in chosen(samples, wanted)[:most]]
    firsts = {prompt: sample for sample in reversed(samples) if (prompt := prompt_of(sample)) in followed}
    places = {id(sample) for sample in (*taken, *firsts.values())}
    return [sample for sample in samples if id(sample) in places]
