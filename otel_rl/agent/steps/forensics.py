"""Detects non-finite numbers, and memory that grows or is exhausted, and makes events of them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.agent.analysis.memory_ledger import Account, Ledger
from otel_rl.agent.hardware.measurement import Point
from otel_rl.agent.steps.state import rank_and_role
from otel_rl.errors.sinks import log_of
from otel_rl.export import Event
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.modes import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from otel_rl.agent.steps.state import Journal
    from otel_rl.export import AttributeValue, Item
    from otel_rl.journal.records import Logged
    from otel_rl.semconv.vocabulary import Vocabulary

logger = log_of(__name__)
_VITAL_METRICS = (semconv.METRIC_TRAIN_LOSS, semconv.METRIC_TRAIN_GRADIENT_NORM)
_VITAL_NAMES = ("loss", "grad_norm", "gradient_norm")
"""Last parts of names that are losses and gradient norms in any dialect."""


class HostMemory(NamedTuple):
    """The memory of the host, in bytes; `limit` is 0 if it is unknown."""

    limit: float = 0.0
    left: float = 0.0


class Forensics:
    """Detectors over the records of all processes. A new agent starts without their history."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.ledger = Ledger()
        self.host = HostMemory()

    def nonfinite(self, journal: Journal, record: Logged) -> list[Event]:
        """Return an event for each loss or gradient norm of a process that is not finite for the first time."""
        if math.isfinite(sum(record.values.values())):
            return []
        phase = journal.phase_now
        rank = journal.started.rank
        found: list[Event] = []
        for metric, value in record.values.items():
            if not math.isfinite(value) and metric not in journal.nonfinite and self._is_vital(metric):
                journal.nonfinite.append(metric)
                attributes: dict[str, AttributeValue] = {semconv.METRIC_NAME: metric, semconv.VALUE: str(float(value))}
                attributes |= {semconv.PHASE: phase} if phase else {}
                found.append(Event(semconv.EVENT_NUMERICS_NONFINITE, record.time, attributes, record.step, rank))
        return found

    def leave(self, name: str, phase: str) -> None:
        """Record the memory that stays allocated after a phase of a process."""
        for account in self.ledger.accounts(name):
            self.ledger.leave(account, phase)

    def balance(self, name: str, journal: Journal, step: int, time: int) -> list[Event]:
        """End a step of a process in the ledger; return an event for each memory that will run out."""
        found: list[Event] = []
        for account in self.ledger.accounts(name):
            outlook = self.ledger.close_step(account, *self._limits(account, journal))
            if outlook is not None:
                attributes: dict[str, AttributeValue] = {
                    **where(account, journal),
                    semconv.PHASE: outlook.phase,
                    semconv.MEMORY_GROWTH: outlook.slope,
                    semconv.MEMORY_GROWTH_LOW: outlook.low,
                    semconv.MEMORY_EXHAUSTION_STEPS: outlook.steps,
                    semconv.MEMORY_MESSAGE: outlook.message,
                }
                found.append(Event(semconv.EVENT_MEMORY_GROWING, time, attributes, step, journal.started.rank))
        return found

    def points(self, journals: Mapping[str, Journal]) -> list[Point]:
        """Return growth and residual by phase, and the steps until the memory is full, of these processes."""
        found: list[Point] = []
        for account in self.ledger.accounts():
            journal = journals.get(account.journal)
            if journal is None:
                continue
            who = where(account, journal) | rank_and_role(journal.started)
            found += _by_phase(semconv.METRIC_MEMORY_GROWTH, self.ledger.growth(account), who)
            found += _by_phase(semconv.METRIC_MEMORY_RESIDUAL, self.ledger.residuals(account), who)
            outlook = self.ledger.outlook(account)
            if outlook is not None:
                left = {outlook.phase: float(outlook.steps)}
                found += _by_phase(semconv.METRIC_MEMORY_EXHAUSTION_STEPS, left, who)
        return found

    def complete(self, name: str, event: Event) -> Event:
        """Return an event of a process; the ledger's content is added to a report of exhausted memory."""
        if event.name != semconv.EVENT_MEMORY_EXHAUSTED:
            return event
        ledger = self.ledger
        books = [
            {"of": one.of, "device": one.device, "residual": ledger.residuals(one), "growth": ledger.growth(one)}
            for one in ledger.accounts(name)
        ]
        return replace(event, attributes=event.attributes | {semconv.MEMORY_LEDGER: json.dumps(books)})

    def _limits(self, account: Account, journal: Journal) -> tuple[float, float | None]:
        """Return the limit in bytes, and the free bytes if the ledger cannot compute them."""
        if not account.of.startswith("device"):
            return self.host.limit, self.host.left
        seen = journal.devices.get(account.device)
        return 0.0 if seen is None else float(seen.total), None

    def _is_vital(self, metric: str) -> bool:
        reading = self._vocabulary.read(metric)
        return metric.rpartition("/")[2] in _VITAL_NAMES if reading is None else reading.metric in _VITAL_METRICS


def _by_phase(metric: str, values: Mapping[str, float], who: Mapping[str, str | int]) -> list[Point]:
    return [
        Point(metric, value, tuple(sorted({**who, semconv.PHASE: phase}.items()))) for phase, value in values.items()
    ]


def where(account: Account, journal: Journal) -> dict[str, str | int]:
    """Return the attributes that identify the memory of an account."""
    if not account.of.startswith("device"):
        return {semconv.MEMORY_OF: account.of}
    seen = journal.devices.get(account.device)
    device = seen.uuid if seen is not None and seen.uuid else str(account.device)
    return {semconv.MEMORY_OF: account.of, semconv.HW_ID: device}


def write_reports(directory: Path, items: Iterable[Item]) -> None:
    """Write each report of exhausted memory among the items to `oom/` in the run directory, as JSON."""
    for item in items:
        if isinstance(item, Event) and item.name == semconv.EVENT_MEMORY_EXHAUSTED:
            report = item.attributes | {"step": item.step, "rank": item.rank, "time_unix_nano": item.time_unix_nano}
            report[semconv.MEMORY_LEDGER] = json.loads(str(item.attributes[semconv.MEMORY_LEDGER]))
            who = f"{item.attributes.get(semconv.ROLE, 'rank')}{item.rank}"
            place = directory / "oom" / f"{who}.step{item.step}.json"
            try:
                make_directory(place.parent)
                write_atomically(place, json.dumps(report, indent=1).encode())
            except OSError as error:
                logger.warning("%s: the report cannot be written: %s", place, error)
