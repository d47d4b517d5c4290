"""Printed lines with the moment of the training that they belong to: step, phase and span of their process."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.export import LogRecord
from otel_rl.recorder.facts.wording import count

if TYPE_CHECKING:
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.journal.records import Printed

_REMEMBERED = 128
"""Lines of messages of logging that are compared with what is printed."""
_PRINTED_WITHIN_NS = 5_000_000_000
"""Nanoseconds after a message in which a handler has printed it, and a buffer has been flushed."""
_SHORTEST = 8
"""Characters of a message that is known again at the end of a line; handlers write time and level before it."""


class _Remembered(NamedTuple):
    """A line of a message of logging, which a handler may print."""

    text: str
    time: int


class Printing:
    """Makes log records of what processes print.

    A handler of logging usually prints what `Printed` has already as a message. It is one record: the message, which
    has its severity and its logger.
    """

    def __init__(self) -> None:
        self._messages: defaultdict[str, deque[_Remembered]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))

    def _is_known(self, messages: deque[_Remembered], record: Printed) -> bool:
        """Return whether a printed line is a message that is recorded already, each line of which is printed once."""
        for message in messages:
            is_same = message.text == record.text or (
                len(message.text) >= _SHORTEST and record.text.endswith(message.text)
            )
            if is_same and 0 <= record.time - message.time < _PRINTED_WITHIN_NS:
                messages.remove(message)
                return True
        return False

    def items(self, name: str, journal: Journal, record: Printed) -> list[LogRecord]:
        """Return the log record of a line of the process with this journal; none for a message that is known."""
        if record.stream == "logging":
            stack = record.attributes.get(semconv.EXCEPTION_STACKTRACE)
            texts = (record.text, stack) if isinstance(stack, str) else (record.text,)
            lines = (line for text in texts for line in text.split("\n") if line)
            self._messages[name].extend(_Remembered(line, record.time) for line in lines)
        elif name in self._messages and self._is_known(self._messages[name], record):
            return []
        started, phase = journal.started, next(reversed(journal.phases), 0)
        open_span = journal.spans.get(record.span_id or phase)
        number, journal.printed = journal.printed, journal.printed + 1
        return [
            LogRecord(
                attempt=started.attempt,
                time_unix_nano=record.time,
                role="" if record.is_shared else started.role,
                rank=None if record.is_shared else started.rank,
                host=started.host,
                number=number,
                stream=record.stream,
                text=record.text if not record.left_out else f"{count(record.left_out, 'line')} left out",
                severity=record.severity,
                logger=record.logger,
                step=None if journal.step < 0 else journal.step,
                phase=journal.phase_now,
                trace_id=(record.trace_id or (open_span.trace_id if open_span is not None else b"")).hex(),
                span_id=f"{record.span_id or phase:016x}" if record.span_id or phase else "",
                repeated=record.repeated,
                cut=record.cut,
                left_out=record.left_out,
                attributes=record.attributes,
            )
        ]
