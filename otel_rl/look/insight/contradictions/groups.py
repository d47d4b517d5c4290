"""Groups of completions of one prompt: their rewards, advantages and lengths, as plain columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.series import Floats


_SHOWN = 6


class CompletionGroup(NamedTuple):
    """The completions of a group, in the order in which they were recorded."""

    step: int
    name: str
    prompt: str
    rewards: Floats
    advantages: Floats
    tokens: Floats

    @property
    def has_signal(self) -> bool:
        """Whether its rewards are known, and differ."""
        return bool(np.isfinite(self.rewards).all() and np.ptp(self.rewards) > 0)

    def row(self, column: str) -> str:
        """Return its rewards and another column in words."""
        others = self.advantages if column == "advantages" else self.tokens
        rewards, values = _listed(self.rewards), _listed(others)
        return f"Step {wording.integer(self.step)}, group {self.name}: rewards {rewards}; {column} {values}"


def _listed(values: Floats) -> str:
    shown = ", ".join(wording.number(float(value)) for value in values[:_SHOWN])
    return f"{shown}, …" if len(values) > _SHOWN else shown


CompletionGroups = tuple[CompletionGroup, ...]


def rows_of(groups: Sequence[CompletionGroup], column: str) -> tuple[str, ...]:
    """Return the first, the middle and the last group in words."""
    return tuple(groups[at].row(column) for at in sorted({0, len(groups) // 2, len(groups) - 1}))
