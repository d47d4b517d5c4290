"""The output of the reducer."""

from __future__ import annotations

import msgspec

from otel_rl.export import Identity, Item, Span
from otel_rl.recorder.agent.steps.window import ObservedValues


class Reduced(msgspec.Struct):
    """The output of one call of the reducer."""

    items: list[Item] = []  # rows, spans, events, tables, parameters and ends, in the order in which they were made
    phases: list[Span] = []  # phases that ended, for the instruments; their spans are items only when the step closes
    observed: dict[Identity, ObservedValues] = {}
    """The observations that each row was reduced from, by the identity of the row."""

    def add(self, other: Reduced) -> None:
        """Add what another call made."""
        self.items += other.items
        self.phases += other.phases
        self.observed |= other.observed
