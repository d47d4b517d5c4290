"""The attempts of a run, and who takes part in each.

An attempt is one start of the training: it begins with the first process that starts while no rank is running, and a
process that starts while an attempt runs belongs to it. The starting process applies this rule to its run directory.
Machines that do not share the directory cannot see each other's ranks, and may number their attempts in different
ways, so the head agent applies the same rule to the times of all starts and ends.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from otel_rl.recorder.agent.steps.assemble import in_attempt
from otel_rl.recorder.agent.steps.state import Journal, machine_of
from otel_rl.recorder.facts.own_time import ProcessTime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.agent.steps.state import State
    from otel_rl.recorder.journal.records import Started


class _Life(NamedTuple):
    """When the ranks of one start on one machine ran; `ended` is `None` while one of them runs."""

    began: int
    ended: int | None

    def joined(self, other: _Life) -> _Life:
        ended = None if self.ended is None or other.ended is None else max(self.ended, other.ended)
        return _Life(min(self.began, other.began), ended)


class _Attempt(NamedTuple):
    """The processes of an attempt: see `Attempts.members` and `Attempts.successions`."""

    members: dict[str, Journal]
    successions: list[tuple[str, str]]


class Attempts:
    """The processes of each attempt. With `whole_world`, as on the head agent, it decides their attempts, too."""

    def __init__(self, state: State, *, whole_world: bool) -> None:
        self._state, self._whole_world = state, whole_world
        self._attempts: dict[int, _Attempt] = {}
        self._last: int | None = None

    @property
    def last(self) -> int:
        """The number of the last attempt."""
        if self._last is None:
            self._last = self._state.last_attempt
        return self._last

    def begin(self, name: str, record: Started) -> Journal:
        """Add a process that begins; a process with a role belongs to the current attempt of the ranks."""
        journals = self._state.journals
        new = journals[name] = Journal(record, record.attempt, time=ProcessTime(record.time), last_time=record.time)
        self._forget()
        if self._whole_world and new.is_rank:
            self._join(name, new)
        ranks = max((one.started.attempt for one in journals.values() if one.is_rank), default=-1)
        for one, journal in journals.items():
            if not journal.is_rank and not journal.over and ranks >= 0:
                self._move(one, journal, ranks)
        return new

    def members(self, attempt: int) -> dict[str, Journal]:
        """Return the processes of an attempt by journal: of the processes that were the same rank, the last one."""
        return self._of(attempt).members

    def successions(self, attempt: int) -> list[tuple[str, str]]:
        """Return pairs of journals of the same rank, an earlier process and the next one, in the order of starts."""
        return self._of(attempt).successions

    def _of(self, attempt: int) -> _Attempt:
        known = self._attempts.get(attempt)
        if known is None:
            journals = {n: one for n, one in self._state.journals.items() if one.started.attempt == attempt}
            starts: dict[int, list[str]] = {}
            for name, journal in sorted(journals.items(), key=_start):
                if journal.is_rank:
                    starts.setdefault(journal.started.rank, []).append(name)
            pairs = [pair for names in starts.values() for pair in pairwise(names)]
            replaced = {earlier for earlier, _ in pairs}
            members = {name: one for name, one in journals.items() if name not in replaced}
            known = self._attempts[attempt] = _Attempt(members, pairs)
        return known

    def _forget(self) -> None:
        """Forget who takes part, because a process has begun, ended, come to life again or moved."""
        self._attempts.clear()
        self._last = None

    def split(self) -> None:
        """Let the starts of the last attempt that began after all its other ranks had ended be the next attempt.

        Call this when processes have ended. The ends of ranks on other machines can arrive after the starts of the
        processes that follow them.
        """
        self._forget()
        if not self._whole_world:
            return
        number = last = self.last
        lives = {key: life for key, life in self._lives().items() if self._state.attempts.get(key) == last}
        before: _Life | None = None
        for key, life in sorted(lives.items(), key=lambda one: one[1].began):
            if before is not None and before.ended is not None and before.ended <= life.began:
                number, before = number + 1, life
            else:
                before = life if before is None else before.joined(life)
            if number > last:
                self._assign(key, number)

    def see(self, name: str, journal: Journal, time: int) -> None:
        """Let a rank that records while a later attempt runs belong to it: its machine was heard of too late."""
        if not self._whole_world or not journal.is_rank or journal.started.attempt == self.last:
            return
        last = self.last
        if time > min(one.started.time for one in self.members(last).values()):
            key = _key(name, journal)
            self._state.attempts[key] = last
            for other, one in self._state.journals.items():
                if one.is_rank and not one.over and _key(other, one) == key:
                    self._move(other, one, last)

    def _join(self, name: str, new: Journal) -> None:
        """Decide the attempt of a rank on the head: the one that ran when the rank began, else the one after it."""
        key, known = _key(name, new), self._state.attempts
        if key not in known:
            lives: dict[int, _Life] = {}
            for other, life in self._lives().items():
                if other in known:
                    attempt = known[other]
                    lives[attempt] = lives[attempt].joined(life) if attempt in lives else life
            known[key] = _attempt_at(new.started.time, lives, new.recorded_attempt)
        self._move(name, new, known[key])

    def _lives(self) -> dict[str, _Life]:
        """Return when the ranks of each start on each machine ran; a rank that another process took over has ended."""
        lives: dict[str, _Life] = {}
        last: dict[int, str] = {}
        for name, journal in sorted(self._state.journals.items(), key=_start):
            if journal.is_rank:
                last[journal.started.rank] = name
        for name, journal in self._state.journals.items():
            if journal.is_rank:
                ended = journal.ended_at if journal.over else None
                # A rank that was killed on a machine that is gone has no end: without this, its attempt would run
                # forever (recorder/agent/test_attempts_model.py).
                if ended is None and last[journal.started.rank] != name:
                    ended = journal.last_time
                life, key = _Life(journal.started.time, ended), _key(name, journal)
                lives[key] = lives[key].joined(life) if key in lives else life
        return lives

    def _assign(self, key: str, attempt: int) -> None:
        self._state.attempts[key] = attempt
        for name, journal in self._state.journals.items():
            if journal.is_rank and _key(name, journal) == key:
                self._move(name, journal, attempt)

    def _move(self, name: str, journal: Journal, attempt: int) -> None:
        """Let a process belong to another attempt, with what it has recorded for open steps."""
        before = journal.started.attempt
        if before == attempt:
            return
        journal.started = replace(journal.started, attempt=attempt)
        self._forget()
        # Its records for open steps move too, or the rows of its new attempt would lack it
        # (recorder/agent/test_attempts_model.py).
        for number, step in self._state.steps.get(before, {}).items():
            if name in step:
                moved = self._state.steps.setdefault(attempt, {}).setdefault(number, {})[name] = step.pop(name)
                moved.spans = [in_attempt(span, attempt) for span in moved.spans]


def _attempt_at(began: int, lives: Mapping[int, _Life], recorded: int) -> int:
    """Return the attempt of a rank that began at a time; the number of a new attempt is at least the recorded one."""
    if not lives:
        return recorded
    before = max((number for number, life in lives.items() if life.began <= began), default=min(lives))
    ended = lives[before].ended
    if ended is None or ended > began:
        return before
    return min((number for number in lives if number > before), default=max(before + 1, recorded))


def _start(one: tuple[str, Journal]) -> tuple[bool, int]:
    """Return the place of a process among those of its rank: one that lives is the last, whatever its clock says."""
    return not one[1].over, one[1].started.time


def _key(name: str, journal: Journal) -> str:
    """Return the identity of a start of the training on a machine."""
    return f"{machine_of(name)}/{journal.recorded_attempt}"
