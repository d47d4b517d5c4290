"""Decides which processes hang, which are slow, and which merely wait for another one.

A process is late when it is longer in a phase than `usual_times` allows, or outside of any phase longer than a step
may take. Of the trainer's ranks, a late one may wait in a collective for another. So it is excused while a rank that is
not in a later step is not late itself, such as rank 0 in its first checkpoint, or the one that came last. When all of
these are late, those that the others wait for are named: ranks that a signal has stopped, else the fewest that are at
another place, and of these the ones that got there first.

A late process that works is slow; otherwise it hangs. Work is CPU time, bytes, records, tokens or a busy GPU. The use
of a CPU or a GPU alone is not proof, because a rank may spin in a collective: after four deadlines it counts no longer.

Of a process on another machine only what arrives is known. It hangs if its machine has sent something since it is late.
If nothing arrives, the machine is silent, whatever its processes do; the others may wait for them.

A verdict is withdrawn when its process goes on: it leaves the phase, works again after it hung, or its
machine is heard again.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from otel_rl.agent.analysis.usual_times import Usual

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.agent.analysis.usual_times import UsualTimes
    from otel_rl.agent.hardware.measurement import Work

Kind = Literal["hung", "slow", "silent"]
Scope = Literal["process", "job"]
_SPINS_AFTER = 4.0
"""Deadlines after which a busy CPU or GPU is not a sign of progress."""
_LEAST_CPU = 0.2
"""Share of a core: threads that poll in the background use less."""
_LEAST_GPU = 0.05
_LEAST_BYTES = 1 << 20
"""Bytes per second."""
_QUIET_S, _SILENT_S = 15.0, 30.0
"""Seconds without anything from a machine, which sends every 10 s: until then it is well, and from then on silent."""
_SAMPLES = 8
_LEAST_WINDOW_S = 2.0


class Place(NamedTuple):
    """Where a process is.

    Attributes:
        progress: Its step, and whether it has left it (1) or is in it (0): a larger one is ahead.
        phase: Its innermost phase; empty outside of any.
        part: The part of the phase.
        since: When it came there, in Unix nanoseconds.
    """

    progress: tuple[int, int]
    phase: str
    part: str
    since: int


class Process(NamedTuple):
    """A process that lives: its name, role, place, and when it recorded something last, in Unix nanoseconds.

    `deadline` is a time in seconds that takes the place of the learned one: of a process that starts, say. `arrived` is
    when its machine sent something last, if it is another one; 0 for this machine.
    """

    name: str
    role: str
    place: Place
    heard: int
    deadline: float | None = None
    arrived: int = 0


class Verdict(NamedTuple):
    """A process that does not go on.

    Attributes:
        name: Its name.
        kind: "slow" if it works, "silent" if nothing arrives from its machine, "hung" otherwise.
        scope: "job" if no rank goes on, "process" otherwise.
        place: Where it is.
        usual: How long it usually is there.
        evidence: What it does, in words.
        silent_since: When its machine sent something last, if it is silent; 0 otherwise.
    """

    name: str
    kind: Kind
    scope: Scope
    place: Place
    usual: Usual
    evidence: str
    silent_since: int = 0


class Change(NamedTuple):
    """A verdict that is new or has changed; or one that is withdrawn, because the process goes on or has ended."""

    verdict: Verdict
    is_withdrawn: bool = False


class _Sample(NamedTuple):
    time: float
    heard: int
    work: Work


class _Followed(msgspec.Struct):
    process: Process
    since: float
    usual: Usual
    heard_at: float
    verdict: Verdict | None = None
    samples: deque[_Sample] = msgspec.field(default_factory=deque)

    @property
    def deadline(self) -> float:
        return self.usual.deadline

    def quiet(self, now: float) -> float:
        """Return the seconds without anything from its machine, if they leave open what it does; 0 otherwise."""
        seconds = now - self.heard_at
        is_known = not self.process.arrived or seconds <= min(now - self.since - self.deadline, _QUIET_S)
        return 0.0 if is_known else seconds

    @property
    def is_silent(self) -> bool:
        return self.verdict is not None and self.verdict.kind == "silent"

    @property
    def is_stopped(self) -> bool:
        return bool(self.samples) and self.samples[-1].work.is_stopped


class HangWatch:
    """Follows the processes of a run; the caller gives it the time, in seconds of a clock that is never set back.

    Args:
        usual: What is known of phases.
        fixed: Seconds after which each phase is late; 0 for the learned time.
    """

    def __init__(self, usual: UsualTimes, fixed: float = 0.0) -> None:
        self._usual, self._fixed = usual, fixed
        self._followed: dict[str, _Followed] = {}

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts that stand."""
        return [one.verdict for one in self._followed.values() if one.verdict is not None]

    def suspects(self, now: float) -> list[str]:
        """Return the processes that are late soon, whose work the next look needs."""
        return [name for name, one in self._followed.items() if now - one.since >= one.deadline / 2]

    def look(self, processes: Sequence[Process], works: Mapping[str, Work], now: float) -> list[Change]:
        """Look at all processes that live; return the verdicts that are new, and those that are withdrawn."""
        changes = self._follow(processes, now)
        for name, work in works.items():
            if (one := self._followed.get(name)) is not None:
                _sample(one, work, now)
        late = {name for name, one in self._followed.items() if now - one.since >= one.deadline}
        if not late:
            return changes
        ranks = [one for one in self._followed.values() if not one.process.role]
        stuck = [one for one in ranks if one.process.name in late]
        stuck = _unexcused(stuck, [one for one in ranks if one.process.name not in late])
        found = [*_behind(stuck, now), *(one for name in late if (one := self._followed[name]).process.role)]
        youngest = max((one.since for one in ranks), default=now)
        for one in {id(one): one for one in [*found, *self._judged(late)]}.values():
            changes += self._judge(one, _scope(one, youngest, now), now)
        return changes

    def _judged(self, late: Iterable[str]) -> list[_Followed]:
        return [one for name in late if (one := self._followed[name]).verdict is not None]

    def _follow(self, processes: Sequence[Process], now: float) -> list[Change]:
        """Note where each process is; return the verdicts on those that went on or have ended."""
        changes: list[Change] = []
        living = {one.name for one in processes}
        for name in [name for name in self._followed if name not in living]:
            changes += _withdrawn(self._followed.pop(name))
        for process in processes:
            known = self._followed.get(process.name)
            if known is not None and known.process.place == process.place:
                if known.process.arrived != process.arrived:
                    known.heard_at = now
                    changes += _begun_again(known, now) if known.is_silent else []
                known.process = process
                continue
            if known is not None:
                changes += _withdrawn(known)
            usual = self._usual.of((process.role, process.place.phase, process.place.part))
            deadline = process.deadline or self._fixed or usual.deadline
            self._followed[process.name] = _Followed(process, now, usual._replace(deadline=deadline), now)
        return changes

    def _judge(self, one: _Followed, scope: Scope, now: float) -> list[Change]:
        works, evidence = _works(one, now)
        before, quiet = one.verdict, one.quiet(now)
        if before is not None and before.kind == "hung" and works:
            return _begun_again(one, now)
        kind: Kind = "silent" if quiet else "slow" if works else "hung"
        if before is not None and ((before.kind, before.scope) == (kind, scope) or (quiet and before.kind == "hung")):
            return []
        if quiet:
            if quiet < _SILENT_S:
                return []
            evidence = f"nothing has arrived from its machine for {quiet:.0f} s; it may be well"
        since = one.process.arrived if quiet else 0
        one.verdict = Verdict(one.process.name, kind, scope, one.process.place, one.usual, evidence, since)
        return [Change(one.verdict)]


def _withdrawn(one: _Followed) -> list[Change]:
    return [] if one.verdict is None else [Change(one.verdict, is_withdrawn=True)]


def _begun_again(one: _Followed, now: float) -> list[Change]:
    """Withdraw the verdict on a process, and give it its time again."""
    changes = _withdrawn(one)
    one.since, one.verdict = now, None
    one.samples.clear()
    return changes


def _window(one: _Followed) -> float:
    return max(_LEAST_WINDOW_S, one.deadline / 4)


def _sample(one: _Followed, work: Work, now: float) -> None:
    """Keep a few samples of the last time in which it is looked whether a process works."""
    window = _window(one)
    while len(one.samples) > 1 and now - one.samples[1].time >= window:
        one.samples.popleft()
    fresh = _Sample(now, one.process.heard, work)
    if len(one.samples) > 1 and one.samples[-1].time - one.samples[-2].time < window / _SAMPLES:
        one.samples[-1] = fresh
    else:
        one.samples.append(fresh)


def _works(one: _Followed, now: float) -> tuple[bool, str]:
    """Return whether a process made progress in the last time, and what it does, in words."""
    if len(one.samples) < 2:
        return False, ""
    first, last = one.samples[0], one.samples[-1]
    if last.work.is_stopped:
        return False, "stopped by a signal or a debugger"
    seconds = max(last.time - first.time, 1e-9)
    cpu, moved = (last.work.cpu - first.work.cpu) / seconds, (last.work.moved - first.work.moved) / seconds
    said = f"{max(cpu, 0.0):.2f} CPU cores, {max(moved, 0.0) / 2**20:.1f} MiB/s"
    if math.isnan(cpu):
        said = "only its records are known"
    if last.heard > first.heard:
        return True, "it records"
    if last.work.tokens > first.work.tokens:
        return True, "its engines generate"
    if moved >= _LEAST_BYTES:
        return True, said
    is_busy = cpu >= _LEAST_CPU or min(first.work.gpu, last.work.gpu) >= _LEAST_GPU
    return is_busy and now - one.since < _SPINS_AFTER * one.deadline, said


def _unexcused(late: Sequence[_Followed], others: Iterable[_Followed]) -> list[_Followed]:
    """Return the late ranks that do not wait for one of the others: one that is not ahead, and not late yet."""
    last = min((one.process.place.progress for one in others), default=None)
    return [one for one in late if last is None or last > one.process.place.progress]


def _behind(stuck: Sequence[_Followed], now: float) -> Sequence[_Followed]:
    """Return the ranks that the others wait for."""
    found = [one for one in stuck if one.is_stopped] or [one for one in stuck if one.quiet(now)]
    if found:
        return found
    places: dict[tuple[object, ...], list[_Followed]] = {}
    for one in stuck:
        places.setdefault(one.process.place[:3], []).append(one)
    if len(places) < 2:
        return stuck
    return min(places.values(), key=lambda found: (len(found), min(one.process.place.since for one in found)))


def _scope(one: _Followed, youngest: float, now: float) -> Scope:
    """Return "job" if no rank has gone on for half the time; `youngest` is when one went on last."""
    return "job" if not one.process.role and now - youngest >= (now - one.since) / 2 else "process"
