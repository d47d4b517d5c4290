"""The recorder of a run: the journal of this process, its clocks, its devices and the counts of refused calls.

Nothing here raises into the trainer: calls that cannot be served are counted and logged.
"""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.convert.attributes import clean_attributes
from otel_rl.recorder.convert.values import sort
from otel_rl.recorder.devices import exhaustion
from otel_rl.recorder.devices.accelerators import Devices
from otel_rl.recorder.devices.host_memory import MemoryReader
from otel_rl.recorder.errors.guard import Guard
from otel_rl.recorder.errors.occasional import is_power_of_ten
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.journal.clock import Clock
from otel_rl.recorder.journal.ending import Ending, ending_by
from otel_rl.recorder.journal.ids import RandomIds, parse_traceparent
from otel_rl.recorder.journal.records import (
    Configured,
    Happened,
    Logged,
    Observed,
    Record,
    Refusals,
    SpanEnded,
    StepEnded,
    encodable_value,
)
from otel_rl.recorder.journal.sink import CLOSED, ClosedError, Sink
from otel_rl.recorder.journal.writer import TooLargeError
from otel_rl.semconv import EVENT_MEMORY_EXHAUSTED, PHASE

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.settings.settings import Memory
    from otel_rl.recorder.trainer.opening import Unrecorded
    from otel_rl.recorder.trainer.session import Session

logger = log_of("otel_rl")
_REPORTED = "_otel_rl_reported"
_LONGEST_WARNING = 500
_MOST_MISTAKES = 64
"""The number of mistakes that are counted and logged each by itself; a name of a metric may change with the step."""
_VARYING = re.compile(r"0x[0-9a-f]+|-?\d[\d.e+-]*")
"""The differences between two texts about the same mistake: numbers of steps, and addresses of objects."""
_LOSES_NOTHING = frozenset(
    {"table_limits", "message_limits", "attribute_limits", "devices", "device_clock", "not_captured", "closed"}
)
"""Reasons to refuse that lose no data of the trainer: documented limits, and otel-rl's own measurements."""
LOST = "record"
"""The reason if a record could not be written, such as on a full disk: nobody made a mistake, and data is lost."""


class Recorder:
    """The writer of a process's records; spans and the run write through it.

    Args:
        session: It has the destination of the records, and checks now and then that somebody reads them.
        reports: Path of out-of-memory reports, without the step and the suffix.
        memory: What is measured on devices.

    Attributes:
        content: If true, texts leave the process.
    """

    def __init__(self, session: Session | Unrecorded, reports: Path, memory: Memory) -> None:
        self.ids = RandomIds()
        self.remote = parse_traceparent(os.environ.get("TRACEPARENT", ""))
        self.memory = MemoryReader()
        self.clock = Clock()
        self.devices = Devices(self.write, self.refuse, memory)
        self.content = session.settings.content
        self._session = session
        self._journal: Sink = session.journal
        self._reports = reports
        self.exiting: tuple[Ending, object] | None = None
        self._refusals: dict[str, int] = {}
        self._mistakes: dict[tuple[str, str], tuple[str, int]] = {}  # the first text, and the count
        redaction.count_with(self.refuse)

    def write(self, record: Record) -> None:
        """Append a record to the journal; a failure is counted and logged."""
        try:
            try:
                self._journal.append(record)
            except (OverflowError, UnicodeEncodeError, TypeError):
                if type(record) is Logged:  # integers beyond 64 bits become floats, or are refused
                    record = Logged(record.step, record.time, sort(record.values, self.refuse).scalars, record.weight)
                self._journal.append(encodable_value(record))
        except TooLargeError as error:
            self._write_parts(record, error)
        except Exception as error:
            self.refuse_error(LOST, error)
        if self._journal.asks_at > self._session.check_at:  # afterwards, as the journal has just read the clock
            self._session.check()
            self.memory.keep()

    def _write_parts(self, record: Record, error: TooLargeError) -> None:
        """Write a record that is too large in two halves, or without its attributes and events."""
        match record:
            case Logged() | Observed() | Configured() if len(record.values) > 1:
                named = list(record.values.items())
                for half in (named[: len(named) // 2], named[len(named) // 2 :]):
                    self.write(replace(record, values=dict(half)))
            case Happened() if record.attributes:
                self.refuse("attribute", f"attributes of event {record.name}: {error}")
                self.write(replace(record, attributes={}))
            case SpanEnded() | StepEnded() if record.attributes or record.events:
                self.refuse("attribute", f"attributes and events of a span: {error}")
                self.write(replace(record, attributes=None, events=None))
            case Observed() | Configured():
                self.refuse("value", f"{next(iter(record.values), '')}: {error}")
            case _:
                self.refuse_error(LOST, error)

    def refuse(self, reason: str, text: str) -> None:
        """Count a call, or a part of it, that cannot be served; log each mistake the 1st, 10th, 100th … time.

        Texts about the same mistake have the same reason and the same name, which is what comes before the colon of a
        value; other texts are compared without their numbers.
        """
        # The error may come from the trainer's own signal handler, which interrupted a check of a value
        # (faults/test_interrupts.py).
        let_pass(sys.exc_info()[1])
        self._refusals[reason] = self._refusals.get(reason, 0) + 1
        try:
            shown = " ".join(text.split())[:_LONGEST_WARNING]
            mistake = reason, shown.partition(": ")[0] if reason == "value" else _VARYING.sub("", shown)
            if mistake not in self._mistakes and len(self._mistakes) >= _MOST_MISTAKES:
                mistake, shown = ("", ""), f"other mistakes, such as {shown}"
            first, before = self._mistakes.get(mistake, (shown, 0))
            count = before + 1
            self._mistakes[mistake] = first, count
            if is_power_of_ten(count):
                logger.warning("%s (refused %s)", shown, times(count))
            # Not by `write`, which refuses a record that fails: on a full disk it would call itself without end
            # (recorder/trainer/test_refused.py).
            self._journal.append(Refusals(dict(self._refusals)))
        except Exception as error:
            let_pass(error)  # the journal fails; the next record that can be written has the count

    def refuse_error(self, call: str, error: Exception) -> None:
        """Count and log an error inside a call, or of the journal's disk."""
        self.refuse("closed" if isinstance(error, ClosedError) else call, f"{call}: {text_of(error)}")

    @property
    def refused(self) -> dict[str, int]:
        """Number of calls, or parts of calls, that were refused so far, by the call or by what was wrong."""
        return dict(self._refusals)

    @property
    def mistakes(self) -> dict[str, int]:
        """How often each wrong call or value was refused, by the first text about it."""
        others = {*_LOSES_NOTHING, LOST}
        return {text: count for (reason, _), (text, count) in self._mistakes.copy().items() if reason not in others}

    @property
    def unwritten(self) -> str:
        """The first reason why records could not be written, and how many; empty if all were."""
        if LOST not in self._refusals:
            return ""
        first = next((text for (reason, _), (text, _) in self._mistakes.copy().items() if reason == LOST), "records")
        return f"not recorded: {first} ({times(self._refusals[LOST])})"

    def failed(self, error: BaseException, phase: str, where: tuple[int | None, bytes, int]) -> None:
        """Report an out-of-memory exception, once for all the phases that it passes through.

        Remember a `SystemExit`, which may end the process.

        Args:
            error: The exception that leaves a span.
            phase: Name of the phase.
            where: The step, the trace id and the span id.
        """
        if isinstance(error, SystemExit):
            self.exiting = ending_by(error), self.position
        if not exhaustion.is_out_of_memory(error) or getattr(error, _REPORTED, False):
            return
        with Guard(partial(self.refuse_error, "oom")):
            setattr(error, _REPORTED, True)  # a reference to the exception would keep its tensors alive
            place = self._reports.with_name(f"{self._reports.name}.step{where[0]}")
            report = clean_attributes(exhaustion.describe(error, self.devices.found, place) | {PHASE: phase})
            self.write(Happened(EVENT_MEMORY_EXHAUSTED, self.clock.now(), report, *where))

    def follow_wall_clock(self) -> None:
        """Follow the wall clock after somebody has set it; no span is open now."""
        if self.clock.catch_up():
            self.devices.silent_until = 0  # it was in the old time

    @property
    def position(self) -> object:
        """How far the journal is: it shows whether the run went on after an exception."""
        return getattr(self._journal, "position", None)

    def close(self) -> None:
        """Refuse and count all further records."""
        self._journal = CLOSED


def times(count: int) -> str:
    """Return a count in words: "1 time", "2 times"."""
    return f"{count} time{'' if count == 1 else 's'}"
