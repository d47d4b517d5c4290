"""The waits of processes at this moment, and who owes them: derived from the spans that are open in all of them.

A process is blamed only for what was recorded, or follows from how the run behaved before: which ranks leave a phase
together, and which processes sample trajectories. Everything else counts as work.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.analyses.waits.members import GROUPS, group_in, members_of
from otel_rl.analyses.waits.servers import server_in
from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.recorder.archive.now import Wait
from otel_rl.recorder.journal.ids import parse_traceparent
from otel_rl.semconv.phase_categories import category_of, is_wait_for_samples

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from otel_rl.analyses.waits.debts import Condition
    from otel_rl.analyses.waits.members import Member
    from otel_rl.recorder.agent.steps.contribution import Contribution
    from otel_rl.recorder.agent.steps.state import State
    from otel_rl.recorder.archive.now import WaitKind
    from otel_rl.recorder.journal.records import SpanStarted

_PART = f"{semconv.SPAN_TRAJECTORY}."
_LONGEST = 200
"""Characters of a name."""
_MOST_GROUPS = 256
_MOST_DEBTORS = 64
_SERVES = (1, 4)  # OpenTelemetry's kinds of spans that serve a request


class OpenWaits(NamedTuple):
    """The open waits of a run."""

    waits: list[Wait]  # what processes that live wait for
    left: list[Wait]  # what processes that are dead were waiting for
    conditions: dict[str, Condition]  # the states of the processes
    servers: dict[str, int]  # addresses of servers that processes of this machine wait for, with the id of one of them
    members: dict[str, Member]  # the processes, by their names in waits


def open_waits(state: State, together: Collection[str], sampled: Sequence[tuple[int, str]]) -> OpenWaits:
    """Return what is waited for.

    Args:
        state: The state of the reducer.
        together: The phases that ranks leave together.
        sampled: When trajectories that have ended began, and their groups.
    """
    scene = _Scene(state, together)
    waits: list[Wait] = []
    left: list[Wait] = []
    for label, member in sorted(scene.members.items(), key=lambda one: one[1].journal.is_rank):
        waits_of_member = [scene.wait(label, member, span) for span in member.inner]
        known = [one for one in waits_of_member if one is not None]
        if member.journal.over:
            scene.conditions[label] = "dead" if member.is_dead else "ended"
            left += known
        else:
            scene.conditions[label] = "waits" if waits_of_member and len(known) == len(waits_of_member) else "works"
            waits += known
    waits += scene.groups(waits, sampled)
    return OpenWaits(waits, left, scene.conditions, scene.servers, scene.members)


class _Scene:
    """The processes of the last attempt, and what belongs together in them.

    Attributes:
        members: The processes by their names.
        conditions: The states of those that were looked at; ranks come last, which wait for the others.
        servers: As in `OpenWaits`.
    """

    def __init__(self, state: State, together: Collection[str]) -> None:
        self._together, self._host = together, socket.gethostname()
        self.conditions: dict[str, Condition] = {}
        self.servers: dict[str, int] = {}
        self.members = members_of(state, state.last_attempt)
        self._steps = state.steps.get(state.last_attempt, {})
        self._owners: dict[int, str] = {}
        opened: list[tuple[str, SpanStarted]] = []
        for label, one in self.members.items():
            self._owners |= {span.span_id: label for span in one.spans}
            opened += [(label, span) for span in one.spans if span.parent_id]
        self._serving: defaultdict[int, list[str]] = defaultdict(list)
        for label, span in opened:
            if self._owners.get(span.parent_id, label) != label:
                self._serving[span.parent_id].append(label)
        self._samplers = {
            label: one for label, one in self.members.items() if one.journal.samples and not one.journal.is_rank
        }
        self._makers = {label: one for label, one in self.members.items() if one.journal.generates}
        self._ended = {label: one for label, one in self.members.items() if one.journal.over and not one.is_dead}
        self._missing: dict[tuple[int, str], tuple[str, ...]] = {}
        self._sampling: tuple[str, ...] = ()

    def wait(self, label: str, member: Member, span: SpanStarted) -> Wait | None:
        """Return what a process waits for in an innermost span; `None` if it works there."""
        owed = self._owed(label, member, span)
        if owed is None:
            return None
        kind, debtors = owed
        root = member.roots.get(span.trace_id)
        return Wait(
            waiter=label,
            kind=kind,
            subject=_subject(span)[:_LONGEST],
            group="" if root is None else group_in(root),
            debtors=tuple(debtors),
            is_any=kind in ("queue", "request"),
            since_unix_nano=span.time,
            step=span.step if member.journal.step < 0 else member.journal.step,
        )

    def groups(self, waits: Sequence[Wait], sampled: Sequence[tuple[int, str]]) -> Iterator[Wait]:
        """Yield the trajectories that the first rank waits for which takes them from a queue."""
        queue = min((one for one in waits if one.kind == "queue"), key=lambda one: one.since_unix_nano, default=None)
        if queue is None:
            return
        rank = self.members[queue.waiter].journal
        since = queue.since_unix_nano if rank.step < 0 else min(queue.since_unix_nano, rank.began_step_at)
        owed = sorted(
            (
                (root.time, label, root)
                for label, one in self._samplers.items()
                for root in one.roots.values()
                if not one.journal.over or one.journal.ended_at >= queue.since_unix_nano or root.time >= since
            ),
            key=lambda one: one[:2],
        )
        done = {group for time, group in sampled if time >= since}
        alive = [(time, group_in(root)) for time, label, root in owed if not self.members[label].journal.over]
        again = done | {group for _, group in alive}
        newest = max((time for time, _ in (*alive, *sampled)), default=0)
        every = len(done | {group_in(root) for _, _, root in owed})
        for _, label, root in owed[:_MOST_GROUPS]:
            member = self.members[label]
            is_named = not GROUPS.isdisjoint(root.awaits or ())
            if member.journal.over and (group_in(root) in again if is_named else newest > member.journal.ended_at):
                continue  # another process may have sampled it again
            inner = next((one for one in reversed(member.inner) if one.trace_id == root.trace_id), root)
            yield Wait(
                waiter=queue.waiter,
                kind="group",
                subject=group_in(root),
                doing=_subject(inner)[:_LONGEST] if inner is not root else "",
                debtors=(label,),
                since_unix_nano=inner.time,
                step=queue.step,
                groups=every,
            )

    def _owed(self, label: str, member: Member, span: SpanStarted) -> tuple[WaitKind, Sequence[str]] | None:
        """Return the kind of what is waited for in a span, and who owes it."""
        if named := (span.awaits or {}).get("awaits"):
            return "ticket", self._named(named, label, span)
        if span.kind not in _SERVES and (serving := self._serving.get(span.span_id)):
            return "request", serving
        if span.kind not in _SERVES and (server := server_in(span.awaits or {})):
            return "request", [self._server(server, member)]
        if span.name.startswith(_PART):
            return "tool", ()
        if member.journal.is_rank and span.kind is None and not span.part:
            return self._of_rank(member, span)
        return None

    def _of_rank(self, member: Member, span: SpanStarted) -> tuple[WaitKind, Sequence[str]] | None:
        """Return what a rank waits for in a phase: trajectories, other ranks, or that others have its weights."""
        category, step = category_of(span.name), member.journal.step
        is_queue = is_wait_for_samples(span.name)
        takes = is_queue or category == "rollout"
        if takes and (samplers := self._may_sample(span.time, is_queue=is_queue)):
            return "queue", samplers
        if step >= 0 and span.name in self._together and (missing := self._not_in(step, span.name, span.time)):
            return "collective", missing
        version = (span.awaits or {}).get("version")
        if category == "sync" and isinstance(version, int):
            behind = [
                label
                for label, one in self._samplers.items()
                if one.journal.version < version and not (one.journal.over and one.journal.ended_at < span.time)
            ]
            return ("sync", behind[:_MOST_DEBTORS]) if behind else None
        return None

    def _may_sample(self, time: int, *, is_queue: bool) -> Sequence[str]:
        """Return the processes that may sample what a rank waits for since a time; of many, those that work first.

        If none lives, it waits for those that have gone since. Before, it may have begun to sample itself, unless it
        waits for others by the name of its phase. Then it waits for those that make rollouts in phases, if nobody
        records trajectories.
        """
        if is_queue and not self._samplers:
            living = [label for label, one in self._makers.items() if not one.journal.over]
            return living[:_MOST_DEBTORS] or [label for label, one in self._makers.items() if one.is_dead]
        if not self._sampling:
            alive = [label for label, one in self._samplers.items() if not one.journal.over]
            works = [label for label in alive if self.conditions[label] == "works"]
            if len(alive) > _MOST_DEBTORS and works:
                alive = [*works, *(label for label in alive if self.conditions[label] != "works")][:_MOST_DEBTORS]
            self._sampling = tuple(alive)
        return self._sampling or [
            label for label, one in self._samplers.items() if one.journal.ended_at >= time or (is_queue and one.is_dead)
        ]

    def _not_in(self, step: int, phase: str, time: int) -> Sequence[str]:
        """Return the ranks that have not come to a phase of a step since a time, or have died in it; of many, some."""
        if (step, phase) not in self._missing:
            contributions = self._steps.get(step, {})
            missing = [
                (not one.is_dead, label)
                for label, one in self.members.items()
                if one.journal.is_rank and not _has_come(one, contributions.get(one.name), step, phase)
            ]
            self._missing[step, phase] = tuple(label for _, label in sorted(missing)[:_MOST_DEBTORS])
        missing_now = self._missing[step, phase]
        if self._ended.keys().isdisjoint(missing_now):
            return missing_now
        return [one for one in missing_now if one not in self._ended or self._ended[one].journal.ended_at >= time]

    def _named(self, named: object, label: str, span: SpanStarted) -> list[str]:
        """Return the processes and servers that a span names; a traceparent stands for who has that span open.

        At a barrier all can name each other: those that are there owe nothing.
        """
        names = []
        for text in map(str, named if isinstance(named, list) else [named]):
            ids = parse_traceparent(text)
            names.append(text if ids is None else self._owners.get(ids.span_id, ""))
        return [one for one in names if one not in ("", label) and not self._is_in(one, span.name)]

    def _is_in(self, label: str, phase: str) -> bool:
        member = self.members.get(label)
        return member is not None and not member.is_dead and any(one.name == phase for one in member.inner)

    def _server(self, address: str, member: Member) -> str:
        """Return the name of a server: the same address can be another one on another machine."""
        started = member.journal.started
        if is_remote(member.name) or started.host != self._host:
            return f"{address} (from {started.host})"
        self.servers[address] = started.pid
        return address


def _has_come(member: Member, contribution: Contribution | None, step: int, phase: str) -> bool:
    """Return whether a rank is in a phase of a step, or beyond it."""
    journal = member.journal
    if journal.position > step or member.is_dead:
        return journal.position > step
    if journal.step == step and any(one.name == phase for one in journal.spans.values()):
        return True
    return contribution is not None and (phase in contribution.seconds or contribution.ended is not None)


def _subject(span: SpanStarted) -> str:
    """Return what a span is about: the name of a tool, a server, or the span."""
    awaits = span.awaits or {}
    if span.name.startswith(_PART):
        name = awaits.get(semconv.GEN_AI_TOOL_NAME) or awaits.get(semconv.TRAJECTORY_PART_NAME) or ""
        return f"{span.name.removeprefix(_PART)} {name}".strip()
    return span.name
