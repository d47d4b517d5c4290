"""Signs that a training is ill, in its main metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.analyses.illness.watch import Illness
from otel_rl.analysis import Analysis

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.analysis import Basis
    from otel_rl.export import Event, Item


class IllnessAnalysis(Analysis):
    """Makes an event of each sign, where the rows of all machines are made and `rows.anomalies` is true."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        is_on = basis.settings.rows.anomalies and basis.has_all_rows
        self._illness = Illness(basis.vocabulary) if is_on else None

    def see(self, items: Sequence[Item]) -> Iterable[Event]:
        """Take rows and parameters; return an event for each sign."""
        return () if self._illness is None else self._illness.events(items)
