"""The output of the reducer."""

from __future__ import annotations

import msgspec

from otel_rl.agent.steps.window import Observed
from otel_rl.export import Identity, Item, Span


class Reduced(msgspec.Struct):
    """The output of one call of the reducer.

    Attributes:
        items: Rows, spans, events, tables, parameters and ends, in the order in which they were made.
        phases: Phases that ended, for the instruments; their spans are items only when the step closes.
        observed: The observations that each row was reduced from, by the identity of the row.
    """

    items: list[Item] = []
    phases: list[Span] = []
    observed: dict[Identity, Observed] = {}

    def add(self, other: Reduced) -> None:
        """Add what another call made."""
        self.items += other.items
        self.phases += other.phases
        self.observed |= other.observed
