"""Memory that grows: which phase takes it, what stays, and when it will run out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.analyses.memory.ledger import OUTSIDE, Account, Ledger
from otel_rl.analysis import Analysis, Point, ProcessEnded
from otel_rl.export import Event
from otel_rl.recorder.agent.steps.assemble import identified
from otel_rl.recorder.agent.steps.boundaries import highest_between
from otel_rl.recorder.agent.steps.state import is_remote, rank_and_role
from otel_rl.recorder.devices.host_memory import parse_snapshot
from otel_rl.recorder.journal.records import SpanEnded, SpanStarted, StepEnded, StepStarted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.analysis import Basis, Handler, Measurement
    from otel_rl.export import AttributeValue
    from otel_rl.recorder.agent.steps.state import Journal


_OF_CGROUP = (semconv.METRIC_CONTAINER_MEMORY_LIMIT, semconv.METRIC_CONTAINER_MEMORY_USAGE)


class HostMemory(NamedTuple):
    """The memory of the host, in bytes; `limit` is 0 if it is unknown."""

    limit: float = 0.0
    left: float = 0.0


class MemoryAnalysis(Analysis):
    """Keeps the ledger of all processes. A new agent starts without their history."""

    scope = "machine"

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self.ledger = Ledger()
        self.host = HostMemory()
        self._on_host: dict[str, float] = {}  # the last measurements of the host and of the agent's cgroup
        self._of_processes: dict[str, dict[str, float]] = {}  # those of processes with a cgroup of their own

    def handlers(self) -> Mapping[type, Handler]:
        """Take the boundaries of phases and steps, and the ends of processes."""
        return {
            SpanStarted: self._cross,
            SpanEnded: self._end_span,
            StepStarted: self._cross,
            StepEnded: self._end_step,
            ProcessEnded: self._forget,
        }

    def attributes(self, journal: str, event: Event) -> Mapping[str, AttributeValue]:
        """Return the content of the ledger for a report of exhausted memory."""
        if event.name != semconv.EVENT_MEMORY_EXHAUSTED:
            return {}
        ledger = self.ledger
        books = [
            {"of": one.of, "device": one.device, "residual": ledger.residuals(one), "growth": ledger.growth(one)}
            for one in ledger.accounts(journal)
        ]
        return {semconv.MEMORY_LEDGER: json.dumps(books)}

    def measured(self, measurements: Sequence[Measurement]) -> None:
        """Add the memory of process trees, under the phase that their trainer is in; note what the host has left."""
        living = {name: one for name, one in self.basis.state.journals.items() if not one.over and not is_remote(name)}
        names = {(one.started.rank, one.started.role): name for name, one in living.items()}
        for measurement in measurements:
            for point in measurement.points:
                attributes = dict(point.attributes)
                if semconv.RANK not in attributes:
                    continue
                name = names.get((int(attributes[semconv.RANK]), str(attributes.get(semconv.ROLE, ""))))
                if name is None:
                    continue
                if point.metric == semconv.METRIC_PROCESS_MEMORY_USAGE:
                    phase = living[name].phase_now or OUTSIDE
                    self.ledger.charge(Account(name, "host_tree"), phase, point.value)
                elif point.metric in _OF_CGROUP:
                    self._of_processes.setdefault(name, {})[point.metric] = point.value
            self._on_host |= {point.metric: point.value for point in measurement.points if not point.attributes}
            used = [one.value for one in measurement.points if one.metric == semconv.METRIC_SYSTEM_MEMORY_USAGE]
            if used:
                self.host = self._room(used[0])

    def _forget(self, name: str, *_: object) -> None:
        self.ledger.forget(name)
        self._of_processes.pop(name, None)

    def points(self) -> list[Point]:
        """Return growth and residual by phase, and the steps until the memory is full, of this machine's processes."""
        points: list[Point] = []
        for account in self.ledger.accounts():
            journal = self.basis.state.journals.get(account.journal)
            if journal is None or is_remote(account.journal):
                continue
            who = _where(account, journal) | rank_and_role(journal.started)
            points += _by_phase(semconv.METRIC_MEMORY_GROWTH, self.ledger.growth(account), who)
            points += _by_phase(semconv.METRIC_MEMORY_RESIDUAL, self.ledger.residuals(account), who)
            outlook = self.ledger.outlook(account)
            if outlook is not None:
                left = {outlook.phase: float(outlook.steps)}
                points += _by_phase(semconv.METRIC_MEMORY_EXHAUSTION_STEPS, left, who)
        return points

    def _cross(self, name: str, journal: Journal, record: SpanStarted | SpanEnded | StepStarted | StepEnded) -> None:
        """Charge the change since the last boundary to the phase that was open until now."""
        phase = journal.phase_now or OUTSIDE
        memory = parse_snapshot(record.memory, journal.started.page_size)
        if memory is not None:
            self.ledger.charge(Account(name, "host"), phase, memory.resident)
        for device in record.devices or ():
            peak, _ = highest_between(journal, device)
            self.ledger.charge(Account(name, "device", device.index), phase, device.allocated, peak)
            if device.used >= 0:
                self.ledger.charge(Account(name, "device_used", device.index), phase, device.used)

    def _end_span(self, name: str, journal: Journal, record: SpanEnded) -> None:
        """Record the memory that stays allocated after a phase."""
        self._cross(name, journal, record)
        begun = journal.spans.get(record.span_id)
        if begun is not None and not begun.part and record.span_id in journal.phases:
            for account in self.ledger.accounts(name):
                self.ledger.leave(account, begun.name)

    def _end_step(self, name: str, journal: Journal, record: StepEnded) -> list[Event]:
        """Return an event for each memory that will run out."""
        self._cross(name, journal, record)
        events: list[Event] = []
        for account in self.ledger.accounts(name):
            outlook = self.ledger.close_step(account, *self._limits(account, journal))
            if outlook is not None:
                attributes: dict[str, AttributeValue] = {
                    **_where(account, journal),
                    semconv.PHASE: outlook.phase,
                    semconv.MEMORY_GROWTH: outlook.slope,
                    semconv.MEMORY_GROWTH_LOW: outlook.low,
                    semconv.MEMORY_EXHAUSTION_STEPS: outlook.steps,
                    semconv.MEMORY_MESSAGE: outlook.message,
                }
                rank = journal.started.rank
                events.append(Event(semconv.EVENT_MEMORY_GROWING, record.time, attributes, record.step, rank))
        return identified(journal, *events)

    def _limits(self, account: Account, journal: Journal) -> tuple[float, float | None]:
        """Return the limit in bytes, and the free bytes if the ledger cannot compute them."""
        if not account.of.startswith("device"):
            return _tighter(self.host, _cgroup_room(self._of_processes.get(account.journal, {})))
        seen = journal.devices.get(account.device)
        return 0.0 if seen is None else float(seen.total), None

    def _room(self, used: float) -> HostMemory:
        """Return the memory of the host, or of the cgroup where that leaves less."""
        limit = self._on_host.get(semconv.METRIC_SYSTEM_MEMORY_LIMIT, 0.0)
        host = HostMemory(limit, limit - used)
        return _tighter(host, _cgroup_room(self._on_host))


def _cgroup_room(measured: Mapping[str, float]) -> HostMemory:
    """Return the memory of a cgroup, by its last measurements."""
    limit = measured.get(semconv.METRIC_CONTAINER_MEMORY_LIMIT, 0.0)
    return HostMemory(limit, limit - measured.get(semconv.METRIC_CONTAINER_MEMORY_USAGE, 0.0))


def _tighter(*rooms: HostMemory) -> HostMemory:
    """Return the memory of which less is left, of those with a limit."""
    return min((room for room in rooms if room.limit > 0), key=lambda room: room.left, default=HostMemory())


def _by_phase(metric: str, values: Mapping[str, float], who: Mapping[str, str | int]) -> list[Point]:
    return [
        Point(metric, value, tuple(sorted({**who, semconv.PHASE: phase}.items()))) for phase, value in values.items()
    ]


def _where(account: Account, journal: Journal) -> dict[str, str | int]:
    """Return the attributes that identify the memory of an account."""
    if not account.of.startswith("device"):
        return {semconv.MEMORY_OF: account.of}
    seen = journal.devices.get(account.device)
    device = seen.uuid if seen is not None and seen.uuid else str(account.device)
    return {semconv.MEMORY_OF: account.of, semconv.HW_ID: device}
