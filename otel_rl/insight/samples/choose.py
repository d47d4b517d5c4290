"""Which samples to read: filters, and an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.insight.samples.sample import Pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.insight.samples.sample import Sample

Order = Literal["extremes", "best", "worst", "longest", "recorded"]
REWARD, GAP = "reward", "gap"
_NUMBERS = (REWARD, "advantage", "loss", GAP)
"""Numbers of a sample besides its components."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The samples that are wanted.

    Attributes:
        step: Of this step; of the last one by default.
        group: Of this group: its number in the step, or its id.
        trajectory: The trajectories whose trace id begins with this; then of all steps.
        contains: Those whose completion has this text, whatever the case; then of all steps by default.
        order: The order: the best and the worst in turns, one of them first, the longest first, or as recorded.
        by: The number that `order` is about: the reward, a component, the advantage, the loss, or the gap.
        other_step: The step that has the samples to compare with; `None` for no comparison.
        most: The largest number of samples.
    """

    step: int | None = None
    group: int | str | None = None
    trajectory: str = ""
    contains: str = ""
    order: Order = "extremes"
    by: str = REWARD
    other_step: int | None = None
    most: int = 4


def chosen(samples: Iterable[Sample], wanted: Wanted) -> list[Sample]:
    """Return the samples that are wanted, in the order that is wanted.

    Those without its number are the last of the extremes, and left out of the best and the worst.
    """
    text = wanted.contains.lower()
    found = [
        one
        for one in samples
        if (wanted.step is None or one.step == wanted.step)
        and (wanted.group is None or in_group(one, wanted.group))
        and one.trace_id.startswith(wanted.trajectory)
        and text in one.completion.lower()
    ]
    if wanted.order == "recorded":
        return found
    if wanted.order == "longest":
        return sorted(found, key=lambda one: -len(one.completion))
    known = [(value, n, one) for n, one in enumerate(found) if (value := value_of(one, wanted.by)) is not None]
    rising = [one for _, _, one in sorted(known, key=lambda entry: entry[:2])]
    if not rising:
        return found
    if wanted.order == "worst":
        return rising
    falling = rising[::-1]
    if wanted.order == "best":
        return falling
    turns = [one for both in zip(falling, rising, strict=True) for one in both]
    return turns[: len(rising)] + [one for one in found if value_of(one, wanted.by) is None]


def in_group(sample: Sample, group: int | str) -> bool:
    """Return whether a sample is of a group: its number in the step, or its id."""
    return str(group) in (str(sample.group), sample.group_id)


def value_of(sample: Sample, by: str) -> float | None:
    """Return the number of a sample that has this name; `None` if it has none."""
    value: float | None = getattr(sample, by) if by in _NUMBERS else None
    return sample.components.get(by, value)


def paired(samples: Sequence[Sample], others: Sequence[Sample]) -> list[Pair]:
    """Return samples with those of another step that have the same prompt, each used once while there are enough."""
    of_prompt: dict[str, list[Sample]] = {}
    for one in others:
        of_prompt.setdefault(prompt_of(one), []).append(one)
    pairs = []
    for one in samples:
        same = of_prompt.get(prompt_of(one), [])
        pairs.append(Pair(sample=one, other=same.pop(0) if len(same) > 1 else same[0] if same else None))
    return pairs


def prompt_of(sample: Sample) -> str:
    """Return what samples of the same prompt have in common."""
    return sample.prompt_id or sample.prompt
