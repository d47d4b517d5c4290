"""Which samples to read: filters, and an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.insight.samples.sample import Pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.insight.samples.sample import Sample

Order = Literal["extremes", "best", "worst", "longest", "recorded"]
REWARD = "reward"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The samples that are wanted.

    Attributes:
        step: Of this step; of the last one by default.
        group: Of this group.
        contains: Those whose completion has this text, whatever the case; then of all steps by default.
        order: The order: the best and the worst in turns, one of them first, the longest first, or as recorded.
        by: The number that `order` is about: the reward, or a component.
        other_step: The step that has the samples to compare with; `None` for no comparison.
        most: The largest number of samples.
    """

    step: int | None = None
    group: int | None = None
    contains: str = ""
    order: Order = "extremes"
    by: str = REWARD
    other_step: int | None = None
    most: int = 4


def chosen(samples: Iterable[Sample], wanted: Wanted) -> list[Sample]:
    """Return the samples that are wanted, in the order that is wanted."""
    text = wanted.contains.lower()
    found = [
        one
        for one in samples
        if (wanted.step is None or one.step == wanted.step)
        and (wanted.group is None or one.group == wanted.group)
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
    return turns[: len(rising)]


def value_of(sample: Sample, by: str) -> float | None:
    """Return the number of a sample that has this name; `None` if it has none."""
    return sample.reward if by == REWARD and by not in sample.components else sample.components.get(by)


def paired(samples: Sequence[Sample], others: Sequence[Sample]) -> list[Pair]:
    """Return samples with those of another step that have the same prompt, each used once while there are enough."""
    of_prompt: dict[str, list[Sample]] = {}
    for one in others:
        of_prompt.setdefault(one.prompt, []).append(one)
    pairs = []
    for one in samples:
        same = of_prompt.get(one.prompt, [])
        pairs.append(Pair(sample=one, other=same.pop(0) if len(same) > 1 else same[0] if same else None))
    return pairs
