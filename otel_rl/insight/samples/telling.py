"""The samples of a run that say the most: extremes of some steps, and the same prompts in each of these steps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from otel_rl.insight.samples.choose import GAP, Wanted, chosen, prompt_of
from otel_rl.insight.samples.read import have_texts, held_by, read_samples
from otel_rl.insight.samples.turns import evenly, with_gaps, with_seconds, with_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from otel_rl.archive.reader import RunReader
    from otel_rl.insight.samples.sample import Sample

_EVEN_STEPS, _MARKED_STEPS = 6, 6
"""Steps that are read: evenly spaced ones, the first and the last among them, and the ones next to those marked."""
_PROMPTS = 3
"""Prompts that are followed through the steps."""
_EXTREMES = (
    (Wanted(order="best"), 2),
    (Wanted(order="worst"), 2),
    (Wanted(order="best", by=GAP), 2),
    (Wanted(order="longest"), 1),
)
"""The orders whose first samples are taken of each step, and how many."""


def telling(run: RunReader, marked: Iterable[int] = ()) -> list[Sample]:
    """Return samples with their tokens, in the order of the steps; `marked` are steps of which some are wanted."""
    some = list(marked)[:_MARKED_STEPS]
    held = held_by(run, some)
    steps = _steps(held.steps, some)
    read = with_gaps(run, list(read_samples(run, held.names, steps)))
    if not have_texts(read):
        return []
    of_step = {step: [one for one in read if one.step == step] for step in steps}
    times = Counter(prompt for those in of_step.values() for prompt in {prompt_of(one) for one in those} if prompt)
    followed = {prompt for prompt, number in times.most_common(_PROMPTS) if number > 1}
    found = [one for those in of_step.values() for one in _of_step(those, followed)]
    return with_tokens(run, with_seconds(run, found))


def _steps(steps: Sequence[int], marked: Iterable[int]) -> list[int]:
    if not steps:
        return []
    near = [min(steps, key=lambda one: abs(one - mark)) for mark in marked]
    return sorted({*evenly(steps, _EVEN_STEPS), *near})


def _of_step(samples: Sequence[Sample], followed: Collection[str]) -> list[Sample]:
    """Return the extremes of a step, and the first sample of each prompt that is followed, in their order."""
    taken = [one for wanted, most in _EXTREMES for one in chosen(samples, wanted)[:most]]
    firsts = {prompt: one for one in reversed(samples) if (prompt := prompt_of(one)) in followed}
    places = {id(one) for one in (*taken, *firsts.values())}
    return [one for one in samples if id(one) in places]
