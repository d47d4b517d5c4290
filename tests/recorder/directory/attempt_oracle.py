"""The attempt of a start, said once more in another way: every question is answered from the whole history.

The two sentences: an attempt is one start of the training: it begins with the first process that starts while none of
its ranks is running, and lasts until all of them have ended. A process that starts while an attempt runs belongs to
that attempt, also a rank that comes back alone, whatever number of starts each has behind it.

A rank that has not started yet has not ended. So it is awaited, unless one of the others failed,
or the launcher counts the start as another one. Processes with a role go with the ranks, if there are any.
"""

from __future__ import annotations

from typing import NamedTuple


class Started(NamedTuple):
    """A start of a process. A label without a digit at its end is that of a role."""

    who: str
    machine: int
    requeues: int = 0
    supervised: int | None = None  # restarts by the supervisor of the machine; `None` without one
    world: int = 2

    @property
    def is_rank(self) -> bool:
        return self.who[-1].isdigit()


class Life(NamedTuple):
    """A process, its attempt, and how it is: "running", "finished", "failed", or "gone" if nobody knows."""

    started: Started
    attempt: int
    state: str


class Oracle:
    """The attempts that follow from a history of processes that share a run directory."""

    def __init__(self) -> None:
        self.lives: list[Life] = []

    def start(self, new: Started) -> int:
        """Add a start; return its attempt."""
        attempt = max(self._last + 1, new.requeues) if self.begins(new) else self._last
        self.lives.append(Life(new, attempt, "running"))
        return attempt

    def begins(self, new: Started) -> bool:
        """Return whether a start would begin an attempt."""
        return self._last < 0 or not self._lasts(self._last, new)

    def end(self, who: str, state: str) -> None:
        """End the running process with a label."""
        self.lives = [
            life._replace(state=state) if life.started.who == who and life.state == "running" else life
            for life in self.lives
        ]

    def running(self) -> dict[str, Started]:
        """Return the running processes by label."""
        return {life.started.who: life.started for life in self.lives if life.state == "running"}

    @property
    def _last(self) -> int:
        return max((life.attempt for life in self.lives), default=-1)

    def _lasts(self, attempt: int, new: Started) -> bool:
        lives = [life for life in self.lives if life.attempt == attempt]
        ranks = [life for life in lives if life.started.is_rank]
        first = lives[0].started
        if new.requeues > first.requeues:
            return False
        if not ranks:
            return new.who not in [life.started.who for life in lives] or any(life.state == "running" for life in lives)
        if not new.is_rank or any(life.state == "running" for life in ranks):
            return True
        if any(life.started.who == new.who for life in ranks):
            return False
        if new.supervised is not None and first.supervised is not None and first.machine == new.machine:
            return new.supervised == first.supervised
        ends = {rank.started.who: [one.state for one in ranks if one.started.who == rank.started.who] for rank in ranks}
        failed = any("failed" in states and "finished" not in states for states in ends.values())
        return new.world == first.world and not failed
