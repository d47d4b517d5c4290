"""The ledger of memory: which phase took what, what stays, whether it grows, and when there is none left.

Between two boundaries of phases, memory changes by some bytes; they are entered under the phase that was open.
So over a step the entries of all phases add up to the growth of the whole, and none is missing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.stats.trend import trend

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTSIDE = "outside"
"""The phase of what happens outside of any."""
_MOST_STEPS = 256
_MATERIAL = 0.05  # of the limit: less growth than that over all steps known is no reason to warn
_FAR_STEPS = 1000


class Account(NamedTuple):
    """Whose memory.

    Attributes:
        journal: The process.
        of: Which memory: device, device_used, host, host_tree.
        device: Its index as the process counts it, 0 for the host.
    """

    journal: str
    of: str
    device: int = 0


class Entry(NamedTuple):
    """One step.

    Attributes:
        step: Its number.
        level: Bytes at its end.
        highest: The most bytes in it.
        changes: Bytes by phase.
    """

    step: int
    level: float
    highest: float
    changes: dict[str, float]


class Outlook(NamedTuple):
    """Memory that grows for sure.

    Attributes:
        phase: Which phase is to blame.
        slope: Bytes more after each step.
        low: What the slope is at least.
        steps: Steps that are left.
    """

    phase: str
    slope: float
    low: float
    steps: int

    @property
    def message(self) -> str:
        """The outlook as a sentence."""
        return f"out of memory in about {self.steps} steps, growing in phase {self.phase}"


class _Book:
    def __init__(self) -> None:
        self.level: float | None = None
        self.highest = 0.0
        self.changes: dict[str, float] = {}
        self.residuals: dict[str, float] = {}
        self.entries: deque[Entry] = deque(maxlen=_MOST_STEPS)
        self.warned_at: float | None = None


class Ledger:
    """Books of all processes and their memories; lives in the agent alone, a new agent begins new ones."""

    def __init__(self) -> None:
        self._books: dict[Account, _Book] = {}
        self._of_journal: dict[str, list[Account]] = {}

    def charge(self, account: Account, phase: str, level: float, peak: float = 0.0) -> None:
        """Enter the change to `level` bytes under the phase in which it came about; `peak` lies in between."""
        book = self._books.get(account)
        if book is None:
            book = self._books[account] = _Book()
            self._of_journal.setdefault(account.journal, []).append(account)
        if book.level is not None:
            book.changes[phase] = book.changes.get(phase, 0.0) + level - book.level
        book.level = level
        book.highest = max(book.highest, level, peak)

    def leave(self, account: Account, phase: str) -> None:
        """Take note of what stays after a phase."""
        book = self._books.get(account)
        if book is not None and book.level is not None:
            book.residuals[phase] = book.level

    def close_step(self, account: Account, step: int, limit: float, room: float | None = None) -> Outlook | None:
        """End a step; return the outlook if it is bad for the first time, or twice as bad as when it was told last.

        Args:
            account: Whose step.
            step: Its number.
            limit: Bytes that there are; 0 if that is not known.
            room: Bytes that are left; by default the limit less the most bytes in the last three steps.
        """
        book = self._books.get(account)
        if book is None or book.level is None:
            return None
        book.entries.append(Entry(step, book.level, book.highest, book.changes))
        book.changes, book.highest = {}, book.level
        outlook = self.outlook(account, limit, room)
        if outlook is None or (book.warned_at is not None and outlook.steps > book.warned_at / 2):
            return None
        book.warned_at = outlook.steps
        return outlook

    def outlook(self, account: Account, limit: float, room: float | None = None) -> Outlook | None:
        """Return when memory runs out and why; `None` where it does not grow for sure, by much, and still."""
        entries = self._books[account].entries
        if limit <= 0 or not entries or entries[-1].level - entries[0].level < _MATERIAL * limit / 2:
            return None  # mostly so: there is no need to fit
        found = trend([entry.step for entry in entries], [entry.level for entry in entries])
        if found is None or found.low <= 0:
            return None
        if found.slope * (entries[-1].step - entries[0].step) < _MATERIAL * limit or not _grows_still(entries):
            return None
        left = limit - max(entry.highest for entry in list(entries)[-3:]) if room is None else room
        steps = max(0.0, left / found.slope)
        if steps > _FAR_STEPS:
            return None
        return Outlook(blamed(_sums(entries)), found.slope, found.low, round(steps))

    def growth(self, account: Account) -> dict[str, float]:
        """Return bytes for each step by phase, over all steps that are known."""
        entries = self._books[account].entries
        return {phase: total / len(entries) for phase, total in _sums(entries).items()} if entries else {}

    def residuals(self, account: Account) -> Mapping[str, float]:
        """Return the bytes that stayed after each phase."""
        return self._books[account].residuals

    def accounts(self, journal: str | None = None) -> list[Account]:
        """Return the accounts of one process, or all."""
        return list(self._books) if journal is None else self._of_journal.get(journal, [])


def blamed(changes: Mapping[str, float]) -> str:
    """Return the phase that is to blame for growth.

    A phase may take what another one gives back. So each release is set against what was taken last before it
    (or, around the end of the step, after it). Of what then is left over, the phase is to blame that gave back a
    part of it, but not all; or else the one that took it.

    Args:
        changes: Bytes by phase, in the order of the phases in a step.
    """
    taken: list[_Taken] = []
    late: list[tuple[str, float]] = []
    for phase, change in changes.items():
        if change >= 0:
            taken.append(_Taken(change, phase))
        else:
            left = _give_back(taken, phase, -change)
            late.append((phase, left))
    for phase, left in late:
        _give_back(taken, phase, left)
    return max(taken, key=lambda entry: entry.amount, default=_Taken(0.0, OUTSIDE)).blamed


class _Taken:
    def __init__(self, amount: float, phase: str) -> None:
        self.amount = amount
        self.blamed = phase


def _give_back(taken: list[_Taken], phase: str, amount: float) -> float:
    """Set a release against what was taken last; return what of it is left."""
    for entry in reversed(taken):
        given = min(amount, entry.amount)
        if given > 0:
            entry.amount -= given
            entry.blamed = phase
            amount -= given
    return amount


def _sums(entries: deque[Entry]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for entry in entries:
        for phase, change in entry.changes.items():
            sums[phase] = sums.get(phase, 0.0) + change
    return sums


def _grows_still(entries: deque[Entry]) -> bool:
    """Tell whether the later half of the steps has its share of the growth: what grows ever less is a warm-up."""
    later = list(entries)[len(entries) // 2 :]
    share = 0.25 if len(entries) > 3 else 0.4
    return later[-1].level - later[0].level >= share * (entries[-1].level - entries[0].level)
