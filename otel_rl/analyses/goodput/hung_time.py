"""The time in which no rank makes progress, as the hang watch finds it: it counts as hung, not as that of a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import Hang
from otel_rl.recorder.facts.goodput import Interval, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.export import Item
    from otel_rl.recorder.agent.steps.state import Journal

_MOST_ENDED = 100
"""Hangs that have ended and are kept for the steps that have not closed."""
_LASTS = 1 << 62
"""The end of a hang that lasts."""


class KnownHangs(msgspec.Struct):
    """The hangs in which no rank makes progress."""

    since: dict[str, int] = {}  # when those that last began, by the journal of the rank
    ended: list[Interval] = []  # those that ended


class HungTime:
    """The intervals in which no rank makes progress; one lasts until any rank records something."""

    def __init__(self, hangs: KnownHangs) -> None:
        self._hangs = hangs
        self.intervals = self._intervals()

    def see(self, items: Iterable[Item], journals: Mapping[str, Journal]) -> None:
        """Take hangs that began, changed or ended."""
        hangs = [item for item in items if isinstance(item, Hang) and not item.role]
        if not hangs:
            return
        names = {_who(journal): name for name, journal in journals.items()}
        for hang in hangs:
            name = names.get((hang.attempt, hang.rank, hang.host, hang.pid), "")
            self._hangs.since.pop(name, None)
            if (hang.scope, hang.kind) == ("job", "hung"):
                self._add(name, hang.started_unix_nano, hang.ended_unix_nano)
        self.intervals = self._intervals()

    def end(self, time: int) -> None:
        """End all hangs that last: a rank has recorded something."""
        if self._hangs.since:
            began = min(self._hangs.since.values())
            self._hangs.since.clear()
            self._add("", began, time)
            self.intervals = self._intervals()

    def _add(self, name: str, began: int, ended: int | None) -> None:
        if ended is None:
            self._hangs.since[name] = began
        else:
            self._hangs.ended = joined([*self._hangs.ended, (began, ended)])[-_MOST_ENDED:]

    def _intervals(self) -> list[Interval]:
        return joined([*self._hangs.ended, *((began, _LASTS) for began in self._hangs.since.values())])


def _who(journal: Journal) -> tuple[int, int, str, int]:
    return journal.started.attempt, journal.started.rank, journal.started.host, journal.started.pid
