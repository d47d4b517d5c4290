"""Decides which processes hang, which are slow, and which merely wait for another one.

A process is late when it is longer in a phase than `usual_times` allows, or outside of any phase longer than a step
may take. Of the trainer's ranks, a late one may wait in a collective for another. So it is excused while a rank that is
not in a later step is not late itself, such as rank 0 in its first checkpoint, or the one that came last. When all of
these are late, those that the others wait for are named: ranks that a signal has stopped, else the fewest that are at
another place, and of these the ones that got there first.

Progress is a record of the process, or a token of the engines that it waits for. A late process that made progress
within its deadline is slow. So is one that moves bytes, or that is busy: the use of a CPU or a GPU alone is not
progress, because a rank may spin in a collective, so after four deadlines it counts no longer. Every other one hangs.

Of a process on another machine only what arrives is known. It hangs if its machine has sent something since it is late.
If nothing arrives, the machine is silent, whatever its processes do; the others may wait for them.

A verdict is withdrawn when its process leaves its place, makes progress after it hung, or its machine is heard again.
CPU time and bytes alone withdraw none: they may be those of a child, or of whoever looks at the process.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from otel_rl.analyses.hang_watch.usual_times import Usual
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.analyses.hang_watch.usual_times import UsualTimes
    from otel_rl.analyses.hang_watch.work import Work

Kind = Literal["hung", "slow", "silent"]
Scope = Literal["process", "job"]
_SPINS_AFTER = 4.0
"""Deadlines after which a busy CPU or GPU is not a sign of progress."""
_LEAST_CPU = 0.2
"""Share of a core, on a machine with cores to spare: threads that poll in the background use less."""
_LEAST_DEMAND = 0.5
"""Share of the time in which one thread runs or waits for a core: a thread that polls sleeps in between."""
_LEAST_GPU = 0.05
_LEAST_BYTES = 1 << 20
"""Bytes per second."""
_QUIET_S, _SILENT_S = 15.0, 30.0
"""Seconds without anything from a machine, which sends every 10 s: until then it is well, and from then on silent."""
_SAMPLES = 8
_LEAST_WINDOW_S = 2.0


class ProcessPlace(NamedTuple):
    """Where a process is."""

    progress: tuple[int, int]  # its step, and whether it has left it (1) or is in it (0): a larger one is ahead
    phase: str  # its innermost phase; empty outside of any
    part: str  # the part of the phase
    since: int  # when it came there, in Unix nanoseconds


class LiveProcess(NamedTuple):
    """A process that lives: its name, role, place, and when it made progress last, in Unix nanoseconds.

    `deadline` is a time in seconds that takes the place of the learned one: of a process that starts, say. `arrived` is
    when its machine sent something last, if it is another one; 0 for this machine.
    """

    name: str
    role: str
    place: ProcessPlace
    progressed: int
    deadline: float | None = None
    arrived: int = 0


class HangVerdict(NamedTuple):
    """A process that does not go on."""

    name: str  # its name
    kind: Kind  # "slow" if it works, "silent" if nothing arrives from its machine, "hung" otherwise
    scope: Scope  # "job" if no rank goes on, "process" otherwise
    place: ProcessPlace  # where it is
    usual: Usual  # how long it usually is there
    evidence: str  # what it does, in words
    progressed: int  # when it came to its place, or made progress there last
    silent_since: int = 0  # when its machine sent something last, if it is silent; 0 otherwise


class VerdictChange(NamedTuple):
    """A verdict that is new or of another kind; or one that is withdrawn, as the process goes on or has ended."""

    verdict: HangVerdict
    is_withdrawn: bool = False


class _Sample(NamedTuple):
    time: float
    work: Work


class _Followed(msgspec.Struct):
    process: LiveProcess
    since: float
    usual: Usual
    heard_at: float
    progressed_at: float
    verdict: HangVerdict | None = None
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
    def kind(self) -> Kind | None:
        return None if self.verdict is None else self.verdict.kind

    @property
    def is_stopped(self) -> bool:
        # At two looks: an autopsy stops a process for a moment too.
        return len(self.samples) > 1 and self.samples[-2].work.is_stopped and self.samples[-1].work.is_stopped


class HangWatch:
    """Follows the processes of a run; the caller gives it the time, in seconds of a clock that is never set back.

    Args:
        usual: What is known of phases.
        fixed: Seconds after which each phase is late; 0 for the learned time.
    """

    def __init__(self, usual: UsualTimes, fixed: float = 0.0) -> None:
        self._usual, self._fixed = usual, fixed
        self._followed: dict[str, _Followed] = {}
        self._earlier: dict[str, HangVerdict] = {}
        self._continued_at = -math.inf

    @property
    def verdicts(self) -> list[HangVerdict]:
        """The verdicts that stand."""
        return [one.verdict for one in self._followed.values() if one.verdict is not None]

    @property
    def usual(self) -> list[tuple[str, str, float]]:
        """Each process, its phase, and the usual time of that, or of a step, in seconds, if it ended before."""
        followed = ((name, one.process.place.phase, one.usual.seconds) for name, one in self._followed.items())
        return [(name, phase, seconds) for name, phase, seconds in followed if seconds is not None]

    def restore(self, verdicts: Iterable[HangVerdict]) -> None:
        """Continue with the verdicts of an earlier watch, as far as the first look finds them still true."""
        self._earlier = {one.name: one for one in verdicts}

    def suspects(self, now: float) -> list[str]:
        """Return the processes that are late soon, whose work the next look needs; that of a hung one says nothing."""
        return [
            name for name, one in self._followed.items() if one.kind != "hung" and now - one.since >= one.deadline / 2
        ]

    def look(self, processes: Sequence[LiveProcess], works: Mapping[str, Work], now: float) -> list[VerdictChange]:
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
        # Excuses come first: while rank 0 saves its first checkpoint, the others only wait for it
        # (analyses/test_hang_watch.py).
        stuck = _unexcused(stuck, [one for one in ranks if one.process.name not in late])
        suspects = [*_behind(stuck, now), *(one for name in late if (one := self._followed[name]).process.role)]
        youngest = max((one.since for one in ranks), default=now)
        for one in {id(one): one for one in [*suspects, *self._judged(late)]}.values():
            scope = _scope(one, youngest, now)
            if one.verdict is not None and youngest <= self._continued_at:
                # A watch that continues another one's work does not know since when the others are where they are.
                scope = one.verdict.scope
            changes += self._judge(one, scope, now)
        return changes

    def _judged(self, late: Iterable[str]) -> list[_Followed]:
        return [one for name in late if (one := self._followed[name]).verdict is not None]

    def _follow(self, processes: Sequence[LiveProcess], now: float) -> list[VerdictChange]:
        """Note where each process is; return the verdicts on those that went on or have ended."""
        changes: list[VerdictChange] = []
        living = {one.name for one in processes}
        for name in [name for name in self._followed if name not in living]:
            changes += _withdrawn(self._followed.pop(name).verdict)
        for process in processes:
            known = self._followed.get(process.name) or self._continued(process, now)
            if known is not None and known.process.place == process.place:
                if known.process.arrived != process.arrived:
                    known.heard_at = now
                    changes += _begun_again(known, now) if known.kind == "silent" else []
                if known.process.progressed < process.progressed:
                    known.progressed_at = now
                    changes += _begun_again(known, now) if known.kind == "hung" else []
                known.process = process
                continue
            if known is not None:
                changes += _withdrawn(known.verdict)
            usual = self._usual.of((process.role, process.place.phase, process.place.part))
            deadline = process.deadline or self._fixed or usual.deadline
            self._followed[process.name] = _Followed(process, now, usual._replace(deadline=deadline), now, now)
        changes += [change for one in self._earlier.values() for change in _withdrawn(one)]
        self._earlier = {}
        return changes

    def _continued(self, process: LiveProcess, now: float) -> _Followed | None:
        """Return a process with the verdict of an earlier watch; `None` if there is none, or it is no longer there."""
        verdict = self._earlier.get(process.name)
        if verdict is None or verdict.place != process.place:
            return None
        self._continued_at = now
        since = now - verdict.usual.deadline
        process_then = process._replace(progressed=verdict.progressed)
        known = _Followed(process_then, since, verdict.usual, now, now, self._earlier.pop(process.name))
        self._followed[process.name] = known
        return known

    def _judge(self, one: _Followed, scope: Scope, now: float) -> list[VerdictChange]:
        before, quiet = one.verdict, one.quiet(now)
        if before is not None and before.kind != "slow":  # `_follow` sees that it goes on, or is heard again
            one.verdict = before._replace(scope=scope)
            return []
        works, evidence = _works(one, now)
        kind: Kind = "silent" if quiet else "slow" if works else "hung"
        if before is not None and kind == "slow":
            one.verdict = before._replace(scope=scope)
            return []
        if quiet:
            if quiet < _SILENT_S:
                return []
            evidence = f"nothing has arrived from its machine for {wording.in_seconds(quiet)}; it may be well"
        process = one.process
        since = process.arrived if quiet else 0
        progressed = max(process.place.since, process.progressed)
        one.verdict = HangVerdict(process.name, kind, scope, process.place, one.usual, evidence, progressed, since)
        return [VerdictChange(one.verdict)]


def _withdrawn(verdict: HangVerdict | None) -> list[VerdictChange]:
    return [] if verdict is None else [VerdictChange(verdict, is_withdrawn=True)]


def _begun_again(one: _Followed, now: float) -> list[VerdictChange]:
    """Withdraw the verdict on a process, and give it its time again."""
    changes = _withdrawn(one.verdict)
    one.since, one.progressed_at, one.verdict = now, now, None
    one.samples.clear()
    return changes


def _window(one: _Followed) -> float:
    return max(_LEAST_WINDOW_S, one.deadline / 4)


def _sample(one: _Followed, work: Work, now: float) -> None:
    """Keep a few samples of the last time in which it is looked whether a process works."""
    window = _window(one)
    while len(one.samples) > 1 and now - one.samples[1].time >= window:
        one.samples.popleft()
    fresh = _Sample(now, work)
    if len(one.samples) > 1 and one.samples[-1].time - one.samples[-2].time < window / _SAMPLES:
        one.samples[-1] = fresh
    else:
        one.samples.append(fresh)


def _works(one: _Followed, now: float) -> tuple[bool, str]:
    """Return whether a process made progress or worked in the last time, and what it does, in words."""
    if one.is_stopped:
        return False, "stopped by a signal or a debugger"
    if now - one.progressed_at < one.deadline and one.progressed_at > one.since:
        return True, "it records"
    if len(one.samples) < 2:
        return False, ""
    first, last = one.samples[0], one.samples[-1]
    seconds = max(last.time - first.time, 1e-9)
    cpu, moved = (last.work.cpu - first.work.cpu) / seconds, (last.work.moved - first.work.moved) / seconds
    said = f"{wording.fixed(max(cpu, 0.0), 2)} CPU cores, {wording.memory(max(moved, 0.0))}/s"
    if math.isnan(cpu):
        said = "only its records are known"
    if moved >= _LEAST_BYTES:
        return True, said
    demand = max(
        (last.work.demands[n] - known for n, known in first.work.demands.items() if n in last.work.demands), default=0
    )
    is_busy = (
        cpu >= _LEAST_CPU * last.work.given
        or demand / seconds >= _LEAST_DEMAND
        or min(first.work.gpu, last.work.gpu) >= _LEAST_GPU
    )
    return (
        is_busy and now - one.since < _SPINS_AFTER * one.deadline,
        f"busy without progress: {said}" if is_busy else said,
    )


def _unexcused(late: Sequence[_Followed], others: Iterable[_Followed]) -> list[_Followed]:
    """Return the late ranks that do not wait for one of the others: one that is not ahead, and not late yet."""
    last = min((one.process.place.progress for one in others), default=None)
    return [one for one in late if last is None or last > one.process.place.progress]


def _behind(stuck: Sequence[_Followed], now: float) -> Sequence[_Followed]:
    """Return the ranks that the others wait for."""
    blamed = [one for one in stuck if one.is_stopped] or [one for one in stuck if one.quiet(now)]
    if blamed:
        return blamed
    places: dict[tuple[object, ...], list[_Followed]] = {}
    for one in stuck:
        places.setdefault(one.process.place[:3], []).append(one)
    if len(places) < 2:
        return stuck
    return min(places.values(), key=lambda blamed: (len(blamed), min(one.process.place.since for one in blamed)))


def _scope(one: _Followed, youngest: float, now: float) -> Scope:
    """Return "job" if no rank has gone on for half the time; `youngest` is when one went on last."""
    return "job" if not one.process.role and now - youngest >= (now - one.since) / 2 else "process"
