"""Which samples to read: filters, and an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.look.insight.samples.sample import Pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.look.insight.samples.sample import TextSample

Order = Literal["extremes", "best", "worst", "longest", "recorded"]
REWARD, GAP = "reward", "gap"
_NUMBERS = (REWARD, "advantage", "loss", GAP)
"""Numbers of a sample besides its components."""


class SampleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The samples that are wanted."""

    steps: tuple[int, int] | None = None  # of the steps from the first to the last one; of the last step by default
    group: int | str | None = None  # of this group: its number in the step, or its id
    trajectory: str = ""  # the trajectories whose trace id begins with this; then of all steps
    contains: str = ""  # those whose completion has this text, whatever the case; then of all steps by default
    order: Order = "extremes"
    """The order: the best and the worst in turns, one of them first, the longest first, or as recorded."""
    by: str = REWARD  # the number that `order` is about: the reward, a component, the advantage, the loss, or the gap
    other_step: int | None = None  # the step that has the samples to compare with; `None` for no comparison
    most: int = 4  # the largest number of samples


def chosen(samples: Iterable[TextSample], wanted: SampleQuery) -> list[TextSample]:
    """Return the samples that are wanted, in the order that is wanted.

    Those without its number are the last of the extremes, and left out of the best and the worst.
    """
    text = wanted.contains.lower()
    wanted_ones = [
        sample
        for sample in samples
        if (wanted.steps is None or wanted.steps[0] <= sample.step <= wanted.steps[1])
        and (wanted.group is None or in_group(sample, wanted.group))
        and sample.trace_id.startswith(wanted.trajectory)
        and text in sample.completion.lower()
    ]
    if wanted.order == "recorded":
        return wanted_ones
    if wanted.order == "longest":
        return sorted(wanted_ones, key=lambda sample: -len(sample.completion))
    known = [
        (value, n, sample) for n, sample in enumerate(wanted_ones) if (value := value_of(sample, wanted.by)) is not None
    ]
    rising = [sample for _, _, sample in sorted(known, key=lambda entry: entry[:2])]
    if not rising:
        return wanted_ones
    if wanted.order == "worst":
        return rising
    falling = rising[::-1]
    if wanted.order == "best":
        return falling
    turns = [sample for both in zip(falling, rising, strict=True) for sample in both]
    return turns[: len(rising)] + [sample for sample in wanted_ones if value_of(sample, wanted.by) is None]


def in_group(sample: TextSample, group: int | str) -> bool:
    """Return whether a sample is of a group: its number in the step, or its id."""
    return str(group) in (str(sample.group), sample.group_id)


def value_of(sample: TextSample, by: str) -> float | None:
    """Return the number of a sample that has this name; `None` if it has none."""
    value: float | None = getattr(sample, by) if by in _NUMBERS else None
    return sample.components.get(by, value)


def paired(samples: Sequence[TextSample], others: Sequence[TextSample]) -> list[Pair]:
    """Return samples with those of another step that have the same prompt, each used once while there are enough."""
    of_prompt: dict[str, list[TextSample]] = {}
    for other in others:
        of_prompt.setdefault(prompt_of(other), []).append(other)
    pairs = []
    for sample in samples:
        same = of_prompt.get(prompt_of(sample), [])
        pairs.append(Pair(sample=sample, other=same.pop(0) if len(same) > 1 else same[0] if same else None))
    return pairs


def prompt_of(sample: TextSample) -> str:
    """Return what samples of the same prompt have in common."""
    return sample.prompt_id or sample.prompt
