"""Watches what the processes of a run wait for, and says at once which waits can never end.

A verdict needs two looks, because the journals of different processes are read one after the other, unless its reason
was reported already, by the agent before this one as well. It is withdrawn when the waits have ended.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.analyses.waits.debts import judge
from otel_rl.analyses.waits.made import MadeTrajectories
from otel_rl.analyses.waits.members import group_of
from otel_rl.analyses.waits.open_waits import open_waits
from otel_rl.analyses.waits.servers import Servers
from otel_rl.analysis import Analysis, Point, SpanLeft
from otel_rl.export import Event, Span
from otel_rl.recorder.agent.steps import assemble
from otel_rl.recorder.archive.now import MadeNow, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.analyses.waits.debts import Condition, DebtVerdict
    from otel_rl.analyses.waits.members import Member
    from otel_rl.analysis import Basis, Handler, LoopTurn
    from otel_rl.export import AttributeValue

_EVERY_S = 0.3
_SHARE = 20
"""At most one part of this many of the agent's time is spent here."""
_CALM_NS = 2_000_000_000
"""Time after which a verdict is withdrawn: between two attempts, a client waits for nothing."""
_MOST = 256
"""Waits in `now.json`."""
_MOST_NAMED = 255
"""Other processes that a wait names."""
_MOST_SAMPLED = 4096
_MOST_BROKEN = 100
"""Reasons that are remembered."""


class Broken(msgspec.Struct):
    """A reason why waits can never end."""

    wait: Wait  # the first of them
    seen_at: int  # when the last one was open, in Unix nanoseconds


class KnownWaits(msgspec.Struct):
    """The knowledge of the analysis, for the agent after this one."""

    broken: dict[str, Broken]  # reasons that were reported and not withdrawn
    made: dict[str, MadeNow]  # the trajectories that processes have made, by journal


class WaitsAnalysis(Analysis):
    """Looks at the open spans of all processes from time to time; a new agent does not repeat its verdicts."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._servers = Servers()
        self._made = MadeTrajectories()
        self._sampled: deque[tuple[int, str]] = deque(maxlen=_MOST_SAMPLED)
        self._suspected: set[object] = set()
        self._next = 0.0
        self._broken: dict[str, Broken] = {}  # reasons that were reported and not withdrawn
        self.waits: tuple[Wait, ...] = ()  # what can never end comes first, then the oldest
        self.urgent: frozenset[object] = frozenset()

    def handlers(self) -> Mapping[type, Handler]:
        """Take the ends of trajectories."""
        return {SpanLeft: self._made.leave}

    def now(self) -> Mapping[str, object]:
        """Return what is waited for, and the trajectories that were made."""
        state = self.basis.state
        return {"waits": self.waits, "made": (*self._made.now(state.journals, state.last_attempt),)}

    def snapshot(self) -> KnownWaits:
        """Return what was reported, and what was made."""
        return KnownWaits(self._broken, self._made.by_journal)

    def restore(self, saved: bytes) -> None:
        """Continue without reporting it again."""
        try:
            known = msgspec.msgpack.decode(saved, type=KnownWaits)
        except msgspec.ValidationError:  # of version 0.1.0
            known = KnownWaits(msgspec.msgpack.decode(saved, type=dict[str, Broken]), {})
        self._broken, self._made.by_journal = known.broken, known.made

    def tick(self, turn: LoopTurn) -> list[Event]:
        """Look, if it is time; return events of new verdicts, and of those that are withdrawn."""
        for item in turn.items:
            if isinstance(item, Span) and item.name == semconv.SPAN_TRAJECTORY:
                self._sampled.append((item.start_unix_nano, group_of(item.attributes, item.span_id)))
        began = time.monotonic()
        if began < self._next and not turn.is_last:
            return []
        opened = open_waits(self.basis.state, self.basis.together, self._sampled)
        conditions: dict[str, Condition] = {**opened.conditions}
        for address in self._servers.gone(opened.servers):
            conditions[address] = "dead"
        judged = self._judged(opened.waits, conditions)
        self.waits = tuple(_merged([*judged, *opened.left]))
        self.urgent = frozenset((one.cause, one.culprits) for one in judged if one.cause)
        self._next = time.monotonic() + max(_EVERY_S, _SHARE * (time.monotonic() - began))
        broken = [one for one in judged if one.cause]
        self.basis.broken = {opened.members[one.waiter].name: (one.cause, one.culprits) for one in broken}
        return self._events(broken, opened.members, turn.now)

    def points(self) -> list[Point]:
        """Return the number of waits that can never end, by their kind and cause."""
        counts = Counter[tuple[str, str]]()
        for one in self.waits:
            counts[one.kind, one.cause] += one.waiters if one.cause else 0
        return [
            Point(semconv.METRIC_BROKEN_WAITS, count, ((semconv.WAIT_CAUSE, cause), (semconv.WAIT_KIND, kind)))
            for (kind, cause), count in counts.items()
            if count
        ]

    def _judged(self, waits: Sequence[Wait], conditions: dict[str, Condition]) -> list[Wait]:
        """Return waits with the verdicts that were true at the last look too."""
        verdicts = {n: (_identity(waits[n]), verdict) for n, verdict in judge(waits, conditions).items()}
        certain = {
            n: verdict
            for n, (identity, verdict) in verdicts.items()
            if (identity, verdict) in self._suspected or _reason(verdict) in self._broken
        }
        # From one look to the next: the journal of a debtor may be read a moment after that of its waiter
        # (analyses/test_waits.py).
        self._suspected = {*verdicts.values()}
        return [
            replace(wait, cause=certain[n].cause, culprits=certain[n].culprits) if n in certain else wait
            for n, wait in enumerate(waits)
        ]

    def _events(self, broken: Sequence[Wait], members: Mapping[str, Member], now: int) -> list[Event]:
        """Return an event for each new reason why waits can never end, and for each that is gone."""
        said = self._broken
        by_reason: dict[str, list[Wait]] = {}
        for wait in broken:
            by_reason.setdefault(_reason(wait), []).append(wait)
        events: list[Event] = []
        for reason, waits in by_reason.items():
            first = min(waits, key=lambda one: (one.culprits[0] not in one.debtors, one.since_unix_nano))
            if reason not in said and len(said) < _MOST_BROKEN:
                events += _event(semconv.EVENT_WAIT_BROKEN, first, members, now)
                said[reason] = Broken(first, now)
            elif reason in said:
                said[reason].seen_at = now
        for reason, one in [*said.items()]:
            # Between two attempts of a request, a client waits for nothing: the verdict would come and go
            # (analyses/test_waits.py).
            if now - one.seen_at > _CALM_NS:
                del said[reason]
                events += _event(semconv.EVENT_WAIT_RESUMED, one.wait, members, now)
        return events


def _event(name: str, wait: Wait, members: Mapping[str, Member], now: int) -> list[Event]:
    attributes: dict[str, AttributeValue] = {
        semconv.WAIT_KIND: wait.kind,
        semconv.WAIT_WAITER: wait.waiter,
        semconv.WAIT_SUBJECT: " ".join(filter(None, (wait.subject, wait.group))),
        semconv.WAIT_CAUSE: wait.cause,
        semconv.WAIT_CULPRITS: list(wait.culprits),
    }
    waiter = members.get(wait.waiter)  # none if another attempt has begun
    if waiter is None:
        return [Event(name, now, attributes, wait.step)]
    journal = waiter.journal
    return assemble.identified(journal, Event(name, now, attributes, wait.step, journal.started.rank))


def _reason(verdict: DebtVerdict | Wait) -> str:
    return "\n".join((verdict.cause, *verdict.culprits))


def _identity(wait: Wait) -> tuple[object, ...]:
    return wait.waiter, wait.kind, wait.subject, wait.group, wait.since_unix_nano


def _joined(wait: Wait, waiter: str) -> Wait:
    return replace(wait, waiters=wait.waiters + 1, others=(*wait.others, waiter)[:_MOST_NAMED])


def _merged(waits: Iterable[Wait]) -> list[Wait]:
    """Return the waits that matter most, those of several processes for the same as one."""
    merged: dict[object, Wait] = {}
    for wait in sorted(waits, key=lambda one: (not one.cause, one.since_unix_nano)):
        same = (wait.kind, wait.subject, wait.group, wait.debtors, wait.step, wait.cause, wait.culprits)
        first = merged.get(same)
        merged[same] = wait if first is None else _joined(first, wait.waiter)
    return [*merged.values()][:_MOST]
