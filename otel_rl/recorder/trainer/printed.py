"""Records of the lines that this process prints, and of its messages of logging.

The agent reads the files that standard output and error go to, which costs the trainer nothing. A terminal or a pipe
cannot be read from outside, so the streams themselves are followed, where the settings ask for it. Nothing here raises,
waits, or changes what reaches the streams.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace
from opentelemetry import trace

from otel_rl import semconv
from otel_rl.recorder.convert.printed import LONGEST_LINE, Assembler, Transcript, shown_lines
from otel_rl.recorder.files.processes import output_files
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.journal.records import Printed
from otel_rl.recorder.secrets import redacted, redacted_start
from otel_rl.recorder.trainer.spans import JournaledSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_rl.recorder.convert.printed import Line
    from otel_rl.recorder.settings.settings import PrintedOutput

    class _Clock(Protocol):
        def now(self) -> int: ...

    class _Writes(Protocol):
        @property
        def clock(self) -> _Clock: ...
        def write(self, record: Printed) -> None: ...


_STREAMS = {"stdout": 1, "stderr": 2}
_SEVERITIES = ((logging.CRITICAL, 21), (logging.ERROR, 17), (logging.WARNING, 13), (logging.INFO, 9))
"""OpenTelemetry's number of each level of logging; records below INFO are not kept."""
_OWN = "otel_rl"


class PrintedLines:
    """Records what this process prints and logs, from `begin` to `close`.

    Args:
        recorder: What it writes with.
        output: What is wanted.
    """

    def __init__(self, recorder: _Writes, output: PrintedOutput) -> None:
        self._recorder, self._output, self._pid = recorder, output, os.getpid()
        self._busy = threading.local()
        self._transcripts: dict[str, Transcript] = {}
        self._open: dict[tuple[str, int], Assembler] = {}
        self._undo: list[Callable[[], None]] = []

    def begin(self, before: Iterable[Printed] = ()) -> None:
        """Record what was printed before, then follow the streams and the loggers, as far as all that is wanted."""
        output = self._output
        if not output.enabled:
            return
        for line in before:
            if output.logging if line.stream == "logging" else output.tee:
                self._recorder.write(_redacted(line))
        files = {number for number, *_ in output_files()}
        for name, number in _STREAMS.items():
            if output.tee and number not in files:
                self._follow(name, getattr(sys, name))
        if output.logging:
            self._follow_logging()

    def close(self) -> None:
        """Record the lines that wait, and leave the streams as they were; a second call is harmless."""
        if os.getpid() != self._pid:
            return  # a forked child, whose parent prints it
        for undo in self._undo:
            undo()
        self._undo = []
        for (name, _), assembler in [*self._open.items()]:
            if assembler.has_open:
                self._keep(name, [assembler.end()])
        self._open = {}
        for name, transcript in self._transcripts.items():
            self._write(name, transcript.end())
        self._transcripts = {}

    def _follow(self, name: str, stream: Any) -> None:
        """Follow a stream by an attribute `write` of its object, which stays the same object for everybody."""
        original = getattr(stream, "write", None)
        if original is None:
            return

        def write(text: str, *args: object) -> object:
            written = original(text, *args)
            self._guarded(self._take, name, text)
            return written

        def undo() -> None:
            if getattr(stream, "__dict__", {}).get("write") is write:
                del stream.write

        self._undo.append(undo)  # first: an interrupt may come behind each line
        try:
            stream.write = write
        except AttributeError:  # an object without attributes of its own: it stays as it is
            return
        self._transcripts[name] = Transcript(self._output.per_second, self._output.limit)

    def _follow_logging(self) -> None:
        """Follow all loggers where they call their handlers, so that no configuration of handlers changes anything."""
        original = logging.Logger.callHandlers

        def call_handlers(self_: logging.Logger, record: logging.LogRecord) -> None:
            # Before the handlers: the agent knows a printed message again by the record that it has already.
            self._guarded(self._take_message, record)
            original(self_, record)

        def undo() -> None:
            if logging.Logger.callHandlers is call_handlers:
                logging.Logger.callHandlers = original  # type: ignore[method-assign]

        self._undo.append(undo)
        logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign, assignment]

    def _guarded(self, take: Callable[..., None], *arguments: object) -> None:
        """Take what was printed, once: what is printed meanwhile in this thread is otel-rl's own."""
        if not self._undo or getattr(self._busy, "is_so", False) or os.getpid() != self._pid:
            return
        self._busy.is_so = True
        try:
            take(*arguments)
        except Exception as error:  # texts and records are any objects
            let_pass(error)
        finally:
            self._busy.is_so = False

    def _take(self, name: str, text: str) -> None:
        key = name, threading.get_ident()  # `print` writes a line in two pieces: those of other threads come between
        if (assembler := self._open.get(key)) is None:
            assembler = self._open[key] = Assembler()
        if lines := assembler.add(text):
            self._keep(name, lines)
            if not assembler.has_open:
                del self._open[key]

    def _keep(self, name: str, lines: list[Line]) -> None:
        if name in self._transcripts:
            self._write(name, self._transcripts[name].add(lines, time.monotonic()))

    def _write(self, name: str, lines: list[Line]) -> None:
        for line in lines:
            self._record(
                stream=name, text=redacted(line.text), repeated=line.repeated, cut=line.cut, left_out=line.left_out
            )

    def _take_message(self, record: logging.LogRecord) -> None:
        severity = next((number for level, number in _SEVERITIES if record.levelno >= level), 0)
        if not severity or record.name.partition(".")[0] == _OWN:
            return
        attributes: dict[str, Any] = {
            semconv.CODE_FILE_PATH: record.pathname,
            semconv.CODE_LINE_NUMBER: record.lineno,
            semconv.CODE_FUNCTION_NAME: record.funcName or "",
            semconv.THREAD_NAME: record.threadName or "",
        }
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            attributes |= {
                semconv.EXCEPTION_TYPE: type(error).__qualname__,
                semconv.EXCEPTION_MESSAGE: _kept(str(error)),
                semconv.EXCEPTION_STACKTRACE: _kept(logging.Formatter().formatException(record.exc_info)),
            }
        text = record.getMessage()
        self._record(
            stream="logging",
            text=_kept(text),
            cut=max(0, len(text) - LONGEST_LINE),
            severity=severity,
            logger=redacted(record.name),
            attributes=attributes,
        )

    def _record(self, **fields: Any) -> None:
        span = trace.get_current_span()
        ids = (span._trace_id, span._span_id) if isinstance(span, JournaledSpan) else (b"", 0)
        self._recorder.write(Printed(self._recorder.clock.now(), **fields, trace_id=ids[0], span_id=ids[1]))


def _redacted(line: Printed) -> Printed:
    """Return a line without secrets of patterns that were not known when it was printed."""
    more = {name: redacted(value) if isinstance(value, str) else value for name, value in line.attributes.items()}
    return replace(line, text=redacted(line.text), logger=redacted(line.logger), attributes=more)


def _kept(text: str) -> str:
    return redacted_start(shown_lines(text), LONGEST_LINE)
