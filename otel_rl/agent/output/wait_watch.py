"""Watches what the processes of a run wait for, and says at once which waits can never end.

A verdict needs two looks, because the journals of different processes are read one after the other. It is withdrawn
when the waits have ended.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.agent.analysis.debts import judge
from otel_rl.agent.hardware.measurement import Point
from otel_rl.agent.hardware.servers import Servers
from otel_rl.agent.steps import assemble
from otel_rl.agent.steps.members import group_of
from otel_rl.agent.steps.state import Broken
from otel_rl.agent.steps.waits import open_waits
from otel_rl.export import Event, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.agent.analysis.debts import Condition
    from otel_rl.agent.analysis.stragglers import Stragglers
    from otel_rl.agent.steps.state import Journal, State
    from otel_rl.archive.now import Wait
    from otel_rl.export import AttributeValue, Item

_EVERY_S = 0.3
_SHARE = 20
"""At most one part of this many of the agent's time is spent here."""
_CALM_NS = 2_000_000_000
"""Time after which a verdict is withdrawn: between two attempts, a client waits for nothing."""
_MOST = 256
"""Waits in `now.json`."""
_MOST_SAMPLED = 4096
_MOST_BROKEN = 100
"""Reasons that are remembered."""


class WaitWatch:
    """Looks at the open spans of all processes from time to time.

    Attributes:
        waits: What is waited for: what can never end comes first, then the oldest.
        reasons: Why some can never end.
    """

    def __init__(self, state: State, stragglers: Stragglers) -> None:
        self._state, self._stragglers = state, stragglers
        self._servers = Servers()
        self._sampled: deque[tuple[int, str]] = deque(maxlen=_MOST_SAMPLED)
        self._suspected: set[object] = set()
        self._next = 0.0
        self.waits: tuple[Wait, ...] = ()
        self.reasons: frozenset[object] = frozenset()

    def look(self, items: Iterable[Item], now: int, *, is_last: bool) -> list[Event]:
        """Look, if it is time; return events of new verdicts, and of those that are withdrawn.

        Args:
            items: What the reducer has made since the last call.
            now: Unix nanoseconds.
            is_last: If true, there may be no other look.
        """
        for item in items:
            if isinstance(item, Span) and item.name == semconv.SPAN_TRAJECTORY:
                self._sampled.append((item.start_unix_nano, group_of(item.attributes, item.span_id)))
        began = time.monotonic()
        if began < self._next and not is_last:
            return []
        found = open_waits(self._state, self._stragglers.together, self._sampled)
        conditions: dict[str, Condition] = {**found.conditions}
        for address in self._servers.gone(found.servers):
            conditions[address] = "dead"
        judged = self._judged(found.waits, conditions)
        self.waits = tuple(_merged([*judged, *found.left]))
        self.reasons = frozenset((one.cause, one.culprits) for one in judged if one.cause)
        self._next = time.monotonic() + max(_EVERY_S, _SHARE * (time.monotonic() - began))
        return self._events([one for one in judged if one.cause], found.journals, now)

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
        certain = {n: verdict for n, (identity, verdict) in verdicts.items() if (identity, verdict) in self._suspected}
        self._suspected = {*verdicts.values()}
        return [
            replace(wait, cause=certain[n].cause, culprits=certain[n].culprits) if n in certain else wait
            for n, wait in enumerate(waits)
        ]

    def _events(self, broken: Sequence[Wait], journals: Mapping[str, Journal], now: int) -> list[Event]:
        """Return an event for each new reason why waits can never end, and for each that is gone."""
        said = self._state.broken
        by_reason: dict[str, list[Wait]] = {}
        for wait in broken:
            by_reason.setdefault("\n".join((wait.cause, *wait.culprits)), []).append(wait)
        found: list[Event] = []
        for reason, waits in by_reason.items():
            first = min(waits, key=lambda one: (one.culprits[0] not in one.debtors, one.since_unix_nano))
            if reason not in said and len(said) < _MOST_BROKEN:
                found += _event(semconv.EVENT_WAIT_BROKEN, first, journals, now)
                said[reason] = Broken(first, now)
            elif reason in said:
                said[reason].seen_at = now
        for reason, one in [*said.items()]:
            if now - one.seen_at > _CALM_NS:
                del said[reason]
                found += _event(semconv.EVENT_WAIT_RESUMED, one.wait, journals, now)
        return found


def _event(name: str, wait: Wait, journals: Mapping[str, Journal], now: int) -> list[Event]:
    attributes: dict[str, AttributeValue] = {
        semconv.WAIT_KIND: wait.kind,
        semconv.WAIT_WAITER: wait.waiter,
        semconv.WAIT_SUBJECT: " ".join(filter(None, (wait.subject, wait.group))),
        semconv.WAIT_CAUSE: wait.cause,
        semconv.WAIT_CULPRITS: list(wait.culprits),
    }
    waiter = journals.get(wait.waiter)  # none if another attempt has begun
    if waiter is None:
        return [Event(name, now, attributes, wait.step)]
    return assemble.identified(waiter, Event(name, now, attributes, wait.step, waiter.started.rank))


def _identity(wait: Wait) -> tuple[object, ...]:
    return wait.waiter, wait.kind, wait.subject, wait.group, wait.since_unix_nano


def _merged(waits: Iterable[Wait]) -> list[Wait]:
    """Return the waits that matter most, those of several processes for the same as one."""
    found: dict[object, Wait] = {}
    for wait in sorted(waits, key=lambda one: (not one.cause, one.since_unix_nano)):
        same = (wait.kind, wait.subject, wait.group, wait.debtors, wait.step, wait.cause, wait.culprits)
        first = found.get(same)
        found[same] = wait if first is None else replace(first, waiters=first.waiters + 1)
    return [*found.values()][:_MOST]
