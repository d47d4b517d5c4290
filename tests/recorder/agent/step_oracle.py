"""The end of a step, said once more in another way: every question is answered from the whole history.

The two sentences: a step closes when every rank that takes part has passed it or ended; a rank that has not is waited
for until nothing has come from it, nor for the step, for the deadline, and another rank has left the step. What is
recorded for a step that has closed is a further row of it, with everything that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

DEADLINE = 10.0


class Moment(NamedTuple):
    """Something that a process did: `kind` is start, begin, end, log, phase, finish or die."""

    time: float
    process: str
    kind: str
    step: int = -1
    value: float = 0.0


class Made(NamedTuple):
    """A row: the sum of the last value of each rank, and the seconds of the rank that spent most in the phase.

    `missing` are the ranks that have not reported; with `partial`, a process died inside the step.
    """

    step: int
    late: bool
    logged: float | None
    phase: float | None
    missing: tuple[int, ...] = ()
    partial: bool = False


class Oracle:
    """The rows that follow from a history. A process is `rank.start`, or `role.start` if it is not a number.

    Of `world` ranks, those that have not begun are waited for until the deadline.
    """

    def __init__(self, world: int) -> None:
        self._world = world
        self._history: list[Moment] = []
        self._open: dict[int, list[Moment]] = {}
        self._closed: set[int] = set()

    def add(self, *moments: Moment) -> list[Made]:
        """Add what happens; return the rows that leave because of it."""
        for moment in moments:
            self._history.append(moment)
            if moment.step >= 0:
                self._open.setdefault(moment.step, []).append(moment)
        return self._leave(self._is_settled, self._history[-1].time)

    def wait(self, now: float) -> list[Made]:
        """Return the rows that leave because time has passed."""
        return self._leave(lambda n: self._is_settled(n) or self._is_overdue(n, now), now)

    def _leave(self, closes: Callable[[int], bool], now: float) -> list[Made]:
        found: list[Made | None] = []
        if self._are_awaited() and now - self._history[0].time <= DEADLINE:
            return []
        for number in sorted(n for n in self._open if closes(n)):
            found.append(self._row(number, self._open.pop(number)))
            self._closed.add(number)
        return [row for row in found if row is not None]

    def _row(self, number: int, of_step: list[Moment]) -> Made | None:
        logged: dict[str, float] = {}
        for one in of_step:
            if one.kind == "log":
                logged[_rank(one.process)] = one.value
        phases: dict[str, dict[str, float]] = {}
        for one in of_step:
            if one.kind == "phase":
                starts = phases.setdefault(_rank(one.process), {})
                starts[one.process] = starts.get(one.process, 0.0) + one.value
        longest = max((by[max(by, key=_start)] for by in phases.values()), default=None)
        edges = {_rank(one.process): one.kind for one in of_step if one.kind in ("begin", "end", "finish", "die")}
        if not logged and longest is None and not {"end", "finish"} & {*edges.values()}:
            return None
        missing = tuple(int(rank) for rank in sorted(self._ranks()) if self._is_missing(rank, number, edges, logged))
        total = sum(logged.values()) if logged else None
        return Made(number, number in self._closed, total, longest, missing, "die" in edges.values())

    def _is_missing(self, rank: str, number: int, edges: Mapping[str, str], logged: Container[str]) -> bool:
        """Return whether a rank that takes part has not ended a step, nor logged for it from outside."""
        process, is_late = self._ranks()[rank], number in self._closed
        takes_part = any(_rank(one.process) == rank and one.kind in ("begin", "log") for one in self._history)
        if not takes_part or self._of(process, "finish") or (is_late and self._has_passed(process, number)):
            return False
        has_logged = rank in logged and edges.get(rank) != "die" and (is_late or rank not in edges)
        return edges.get(rank) not in ("end", "finish") and not has_logged

    def _ranks(self) -> dict[str, str]:
        """Return the last start of each rank."""
        return {_rank(p): p for p in (one.process for one in self._history) if _rank(p).isdecimal()}

    def _are_awaited(self) -> bool:
        """Return whether ranks have not begun, although somebody may still work."""
        last = {_rank(one.process): one.process for one in self._history}
        over = {process for process in last.values() if self._of(process, "finish", "die")}
        ranks = [process for rank, process in last.items() if rank.isdecimal()]
        begun = sum(process in over or bool(self._of(process, "begin", "log")) for process in ranks)
        return bool(ranks) and begun < self._world and len(over) < len(last)

    def _is_settled(self, number: int) -> bool:
        waiting = [p for p in self._workers(alive=True) if not self._has_passed(p, number)]
        if number in self._closed:
            again = {one.process for one in self._open[number]}
            waiting = [p for p in waiting if p in again]
        return not waiting

    def _is_overdue(self, number: int, now: float) -> bool:
        worked = {one.process for one in self._open[number]}
        if not any(p in worked and self._has_left(p, number) for p in self._workers(alive=False)):
            return False
        waiting = [p for p in self._workers(alive=True) if not self._has_passed(p, number)]
        recent = [one.time for one in self._open[number]]
        recent += [one.time for one in self._history if one.process in waiting]
        return max(recent) < now - DEADLINE

    def _workers(self, *, alive: bool) -> list[str]:
        """Return those that steps wait for: the last start of each rank; those that mark steps, if any does."""
        last = {_rank(one.process): one.process for one in self._history if one.kind == "start"}
        found = [p for p in last.values() if self._of(p, "begin", "log")]
        living = [p for p in found if not self._of(p, "finish", "die")]
        if any(self._of(p, "begin") for p in living):
            found = [p for p in found if self._of(p, "begin")]
        if any(_rank(p).isdecimal() for p in living if p in found):
            found = [p for p in found if _rank(p).isdecimal()]
        return [p for p in found if p in living] if alive else found

    def _of(self, process: str, *kinds: str) -> list[Moment]:
        return [one for one in self._history if one.process == process and one.kind in kinds]

    def _position(self, process: str) -> int:
        """Return the step that a process begun last, or logged for if it marks none."""
        return (self._of(process, "begin") or self._of(process, "log") or [Moment(0, process, "", -1)])[-1].step

    def _has_passed(self, process: str, number: int) -> bool:
        return self._position(process) > number

    def _has_left(self, process: str, number: int) -> bool:
        if self._of(process, "finish", "die"):
            return not self._of(process, "die") or self._inside(process) != number
        if self._inside(process) == number or self._position(process) < number:
            return False
        steps = {one.step for one in self._of(process, "begin", "log")}
        return self._position(process) > number or bool(self._of(process, "begin")) or len(steps) > 1

    def _inside(self, process: str) -> int | None:
        last = [one for one in self._history if one.process == process and one.kind in ("begin", "end")]
        return last[-1].step if last and last[-1].kind == "begin" else None


def _rank(process: str) -> str:
    """Return the rank of a process; a process with a role is nobody's successor."""
    rank = process.partition(".")[0]
    return rank if rank.isdecimal() else process


def _start(process: str) -> int:
    return int(process.partition(".")[2])
