"""The memory ledger: which phase allocates memory, what stays allocated, and when memory will run out.

Each change of memory between two boundaries of phases counts for the phase that was open. Over a step the changes of
all phases therefore sum to the growth of the memory.

A forecast is made after each step, by two rules. Together they raise a false alarm in at most 5 % of the runs of a
process and memory, however long a run is:

- **Drift.** The levels at the ends of the last 9 to 288 steps are tested for a drift (`trend.drift`),
  which holds for stationary noise, autocorrelated noise and random walks without a drift. Every look spends a part
  of 4 %: of W windows, the j-th look at a window may be wrong with probability 4 % / W / j(j + 1), which adds up to
  4 % over all looks there will ever be (alpha spending: Lan and DeMets 1983, "Discrete sequential boundaries for
  clinical trials", Biometrika 70). A drift that slows down is a warm-up.
- **Rush.** In the first steps, memory that has never fallen, took 8 % of the limit or more in each of the last two
  steps, and would be full before the test has seen enough, is reported at once. Three levels of any noise ascend in
  one of six cases, so no test can be certain that early: the rule keeps its 1 % while noise is below 6 % of the limit.

Growth below 8 % of the limit (or what is left of it, if that is less) and 256 MiB (an eighth of a smaller limit than 2
GiB) is not reported: caches that fill up and are emptied grow like that. The first such growth, if it lasts 9 steps,
cannot be distinguished from a leak.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.analyses.memory.trend import drift
from otel_rl.recorder.convert.known_names import OTHER, KnownNames
from otel_rl.recorder.stats.statistics import quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUTSIDE = "outside"
"""The phase name for changes outside of any phase."""
_FAR_STEPS = 1000
_MOST_PHASES = 200
_LEAST_SHARE = 0.08
"""Share of the limit by which memory has to grow, at the least."""
_LEAST_BYTES = 256 << 20


class _Window(NamedTuple):
    """The last steps, in nine blocks of this length; looked at again whenever an eighth of them is new."""

    length: int

    @property
    def steps(self) -> int:
        return _BLOCKS * self.length

    def look(self, known: int) -> int:
        """Return the number of the look that is due after `known` steps, from 1 on; 0 if none is."""
        looks, rest = divmod(known - self.steps, max(1, self.steps // 8))
        return looks + 1 if looks >= 0 and not rest else 0


_BLOCKS = 9
"""Few and long: averages over long blocks are what noise spoils least; fewer leave too little to judge noise by."""
_WINDOWS = tuple(_Window(length) for length in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
_MOST_STEPS = _WINDOWS[-1].steps
_MOST_BEFORE = 256
"""Levels before a window that are remembered, to know how high memory rose before."""
_DRIFT_ERROR = 0.04
"""Probability of a false alarm in a run of any length, by drift; what is left of 5 % is for rushes."""
_RUSH_STEPS = 10
"""Memory that would be full by this step is too fast for the test: its first look is after step 9."""


class Account(NamedTuple):
    """One kind of memory of one process: device, device_used, host, or host_tree.

    `device` is the index of the device as the process counts it, 0 for the host.
    """

    journal: str
    of: str
    device: int = 0


class StepMemory(NamedTuple):
    """One step: the most bytes in it, and the changes in bytes by phase."""

    highest: float
    changes: dict[str, float]


class Outlook(NamedTuple):
    """A forecast for memory that grows in a phase: bytes per step, and steps until the memory is full.

    `low` is the lower bound of the slope, at one-sided 95 %; of two steps, the smaller growth.
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
        self.entries: deque[StepMemory] = deque(maxlen=_MOST_STEPS)
        self.levels: deque[float] = deque(maxlen=_MOST_STEPS + _MOST_BEFORE)
        self.steps = 0
        self.drifts: _Window | None = None
        self.outlook: Outlook | None = None
        self.warned_at: float | None = None


class Ledger:
    """The accounts of all processes and their kinds of memory. A new agent starts from zero."""

    def __init__(self) -> None:
        self._books: dict[Account, _Book] = {}
        self._phases = KnownNames("phases with memory", _MOST_PHASES)
        self._of_journal: dict[str, list[Account]] = {}

    def charge(self, account: Account, phase: str, level: float, peak: float = 0.0) -> None:
        """Add the change to `level` bytes to the phase in which it happened; `peak` is the highest level in between."""
        book = self._books.get(account)
        if book is None:
            book = self._books[account] = _Book()
            self._of_journal.setdefault(account.journal, []).append(account)
        # The first level is not a change: it was there before the first phase, which would be blamed for all of it.
        if book.level is not None:
            phase = phase if self._phases.admits(phase) else OTHER
            book.changes[phase] = book.changes.get(phase, 0.0) + level - book.level
        book.level = level
        book.highest = max(book.highest, level, peak)

    def forget(self, journal: str) -> None:
        """Remove the accounts of a process that has ended."""
        for account in self._of_journal.pop(journal, []):
            del self._books[account]

    def leave(self, account: Account, phase: str) -> None:
        """Record the memory that stays allocated after a phase."""
        book = self._books.get(account)
        if book is not None and book.level is not None:
            book.residuals[phase if self._phases.admits(phase) else OTHER] = book.level

    def close_step(self, account: Account, limit: float, room: float | None = None) -> Outlook | None:
        """End a step; return the outlook if it is bad for the first time, or twice as bad as when it was last reported.

        The limit is in bytes, 0 if it is unknown. `room` is the free bytes; by default the limit less the highest level
        in the last three steps.
        """
        book = self._books.get(account)
        if book is None or book.level is None:
            return None
        book.entries.append(StepMemory(book.highest, book.changes))
        book.levels.append(book.level)
        book.steps += 1
        book.changes, book.highest = {}, book.level
        left = limit - max(entry.highest for entry in list(book.entries)[-3:]) if room is None else room
        outlook = book.outlook = _outlook(book, limit, left) if limit > 0 else None
        if outlook is None or (book.warned_at is not None and outlook.steps > book.warned_at / 2):
            return None
        book.warned_at = outlook.steps
        return outlook

    def outlook(self, account: Account) -> Outlook | None:
        """Return when memory runs out and why, as of the end of the last step; `None` if it does not grow."""
        return self._books[account].outlook

    def growth(self, account: Account) -> dict[str, float]:
        """Return the average change in bytes per step by phase, over all remembered steps."""
        entries = self._books[account].entries
        return {phase: total / len(entries) for phase, total in _sums(entries).items()} if entries else {}

    def residuals(self, account: Account) -> Mapping[str, float]:
        """Return the bytes that stayed after each phase."""
        return self._books[account].residuals

    def accounts(self, journal: str | None = None) -> list[Account]:
        """Return the accounts of one process, or all."""
        return list(self._books) if journal is None else list(self._of_journal.get(journal, []))


def blamed(changes: Mapping[str, float]) -> str:
    """Return the phase that causes the growth.

    A phase may allocate memory that another one frees. So each release is matched with the last allocation before it
    (or, across the end of the step, after it). The cause of the rest is the phase that freed a part of it but not all;
    otherwise the phase that allocated it. The changes are in bytes, in the order of the phases in a step.
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
    """Match a release with the last allocations; return the bytes without a match."""
    for entry in reversed(taken):
        given = min(amount, entry.amount)
        if given > 0:
            entry.amount -= given
            entry.blamed = phase
            amount -= given
    return amount


def _sums(entries: deque[StepMemory]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for entry in entries:
        for phase, change in entry.changes.items():
            sums[phase] = sums.get(phase, 0.0) + change
    return sums


def _outlook(book: _Book, limit: float, left: float) -> Outlook | None:
    growth = _rush(book, limit, left) or _drift(book, limit, left)
    if growth is None:
        return None
    slope, low = growth
    steps = max(0.0, left / slope)
    return Outlook(blamed(_sums(book.entries)), slope, low, round(steps)) if steps <= _FAR_STEPS else None


def _rush(book: _Book, limit: float, left: float) -> tuple[float, float] | None:
    """Return the slope and its lower bound if memory will be full before the test for a drift can see it."""
    levels = book.levels
    if not 3 <= book.steps < _RUSH_STEPS or any(after < before for before, after in pairwise(levels)):
        return None
    low = min(levels[-1] - levels[-2], levels[-2] - levels[-3])
    slope = (levels[-1] - levels[-3]) / 2
    if low < max(_LEAST_SHARE * limit, _LEAST_BYTES) or book.steps + left / slope > _RUSH_STEPS:
        return None
    return slope, low


def _drift(book: _Book, limit: float, left: float) -> tuple[float, float] | None:
    """Return the slope and its lower bound if memory drifts upward now, or did at the last test and still does."""
    least = max(min(_LEAST_BYTES, limit / 8), min(_LEAST_SHARE * limit, left))
    levels = list(book.levels)
    for window in _WINDOWS:
        if look := window.look(book.steps):
            error = _DRIFT_ERROR / len(_WINDOWS) / (look * (look + 1))
            if _rises(levels, window, least) and drift(levels[-window.steps :], _BLOCKS).chance < error:
                book.drifts = window
    if book.drifts is None:
        return None
    recent = levels[-book.drifts.steps :]
    if not _rises_still(recent):
        book.drifts = None
        return None
    trend = drift(recent, _BLOCKS)
    return trend.slope, trend.low


def _rises(levels: Sequence[float], window: _Window, least: float) -> bool:
    """Return whether a window ends so much higher than it began, and than memory usually was before it."""
    if levels[-1] - levels[-window.steps] < least / 2:
        return False  # the common case, found cheaply
    recent, before = levels[-window.steps :], sorted(levels[: -window.steps])
    began = fmean(recent[: window.length])
    usual = max(began, quantile(before, 0.9)) if before else began
    return fmean(recent[-window.length :]) - usual >= least and _rises_still(recent)


def _rises_still(levels: Sequence[float]) -> bool:
    """Return whether the later half has its share of the growth; growth that slows down is a warm-up."""
    quarter, middle = len(levels) // 4, len(levels) // 2
    first, last = fmean(levels[:quarter]), fmean(levels[-quarter:])
    return last - first > 0 and last - fmean(levels[middle - quarter // 2 :][:quarter]) >= 0.25 * (last - first)
