"""The end of a run: its last record, the end of its journal, and the wait for the exporters."""

from __future__ import annotations

import math
import shlex
import sys
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from opentelemetry import context, trace

from otel_rl.recorder.errors.sinks import log_of, one_line, print_line, shortened
from otel_rl.recorder.errors.texts import shown, text_of, type_of
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.journal.ending import ending_by
from otel_rl.recorder.journal.records import Finished
from otel_rl.recorder.journal.sink import NOWHERE
from otel_rl.recorder.trainer.recorder import LOST, times
from otel_rl.recorder.trainer.spans import JournaledSpan

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.recorder.journal.ending import Ending
    from otel_rl.recorder.trainer.opening import Unrecorded
    from otel_rl.recorder.trainer.printed import PrintedLines
    from otel_rl.recorder.trainer.session import Session
    from otel_rl.recorder.trainer.step import Steps

logger = log_of("otel_rl")
PATIENCE_S = 30.0
"""Seconds that `finish` waits for the exporters by default."""
_ARRIVAL_S = 5.0
"""Seconds that it waits at most for values that are still on their way from a device."""
_MOST_NAMED = 8
"""The number of mistakes that the last warning names; the result of `finish` has all."""
_LONGEST_NAMED = 160


class Delivery(msgspec.Struct, frozen=True):
    """The result of `finish`: true if everything that this process recorded was delivered in time."""

    delivered: bool
    """If true, every exporter holds everything that was recorded, and no record was lost."""
    refused: Mapping[str, int] = MappingProxyType({})
    """How often each wrong call or value was refused, by the text of its first warning. It was never recorded, so it
    does not change `delivered`.
    """
    missing: str = ""
    """Why `delivered` is false, and what to do; empty if nobody waited."""

    def __bool__(self) -> bool:
        return self.delivered


class RunEnd:
    """The end of a run, which comes once: by `finish`, at the exit of the process, or both.

    Attributes:
        is_over: If true, the last record of the run is in the journal.
        printed: What records the lines that are printed until then.
    """

    when_over: Callable[[], object] = bool
    """Called then."""

    def __init__(self, steps: Steps, session: Session | Unrecorded, printed: PrintedLines) -> None:
        self._steps, self._recorder, self._session, self.printed = steps, steps.recorder, session, printed
        self._lock = threading.RLock()  # a signal handler that interrupts `finish` may call it
        self._finished: Finished | None = None
        self.is_over = self._is_written = self._has_end_file = self._is_exiting = False
        self._result: Delivery | None = None
        self._interpreter = _Interpreter()

    def by_call(self, timeout: object) -> Delivery:
        """End the run where `finish` is called, by the exception that is being handled there."""
        return self.end(timeout, self._interpreter.handled())

    def at_exit(self) -> None:
        """End the run with its process; the agent prefers the exit status, which is not known yet."""
        self._is_exiting = True
        self.in_child()

    def in_child(self) -> None:
        """End the run with a process that ends without `atexit`, by the exception that ends it."""
        error = self._interpreter.handled() or self._interpreter.uncaught()
        exiting = self._recorder.exiting
        if error is None and exiting is not None and exiting[1] == self._recorder.position:  # nothing since
            self.end(0, None, exiting[0])
        else:
            self.end(0, error)

    def end(self, timeout: object, error: BaseException | None, ending: Ending | None = None) -> Delivery:
        """End the run and wait; return whether everything was delivered.

        Args:
            timeout: Seconds to wait for the exporters.
            error: The exception that ends the run.
            ending: The outcome, if it does not follow from the exception.
        """
        recorder = self._recorder
        seconds = self._seconds(timeout)
        deadline = time.monotonic() + seconds
        # With a limit: another thread may hold the lock for as long as it waits for the exporters
        # (faults/test_finish.py).
        if not self._lock.acquire(timeout=seconds):
            waiting = Delivery(False, missing="another thread is still waiting")
            return waiting if self._result is None else self._result
        try:
            if self._result is None:
                self._end_record(error, ending_by(error) if ending is None else ending, min(seconds, _ARRIVAL_S))
                delivered = self._session.wait_until_delivered(max(0.0, deadline - time.monotonic()))
                undelivered = self._session.missing() if not delivered and seconds else ""
                missing = "; ".join(filter(None, (recorder.unwritten, undelivered)))
                complete = delivered and not recorder.unwritten
                self._result = Delivery(complete, MappingProxyType(recorder.mistakes), missing)
                self._warn(self._result)
                self._say_how_to_look()
        except Exception as failure:
            let_pass(failure)
            what, place = f"{type_of(failure)}: {text_of(failure)}".replace("\n", " "), self._session.directory.path
            logger.warning("could not end the run in order; its records are in %s: %s", place, what)
            self._result = Delivery(False, MappingProxyType(recorder.mistakes), what)
        finally:
            self._lock.release()
        self.when_over()
        return self._result

    def _say_how_to_look(self) -> None:
        """Print where the rows are and the command that shows them, in the process that printed where it records."""
        settings, highest, place = self._session.settings, self._steps.highest, self._session.directory.path
        if settings.rank or settings.role or settings.quiet or self._session.journal is NOWHERE:
            return
        what = "" if highest < 0 else f" up to step {highest:,}"
        fed = () if settings.agent == "off" else settings.exporters
        command = f"otel-rl top {shlex.quote(str(place))}"
        names = [
            str(place / exporter.options.get("path", "rows.jsonl")) if exporter.name == "jsonl" else exporter.name
            for exporter in fed
        ]
        what += f"; rows: {', '.join(names)}" if names else ""
        print_line(one_line(f"otel-rl: recorded{what}; to look at it: {command}"))

    def _warn(self, result: Delivery) -> None:
        """Log in one line what was refused, and what is missing; nothing about deliveries that nobody waited for."""
        named = [f"{shortened(text, _LONGEST_NAMED)} ({times(count)})" for text, count in result.refused.items()]
        if len(named) > _MOST_NAMED:
            named[_MOST_NAMED:] = [f"{len(named) - _MOST_NAMED} other mistakes"]
        why = [result.missing] if result.missing else []
        why += [f"refused, or recorded in part: {', '.join(named)}"] if named else []
        if why:
            what = " is not complete" if result.missing else ""
            logger.warning("run %s%s: %s", self._session.settings.id, what, "; ".join(why))

    def _end_record(self, error: BaseException | None, ending: Ending, arrival_s: float) -> None:
        """Write the last record and close the journal; each line may run twice, after an interrupt."""
        recorder = self._recorder
        # Kept from a first call that was interrupted: the run ends once, and as it ended then
        # (faults/test_interrupts.py).
        if self._finished is None:
            self._end_spans(error)
            recorder.devices.wait(arrival_s)
            self.printed.close()
            self._finished = Finished(recorder.clock.now(), *ending)
        # Refuses other threads before the last record; what one of them is just writing may still come behind it
        # (faults/test_liveness.py).
        recorder.close()
        if not self._is_written:
            self._has_end_file = self._is_exiting and self._session.write_end(self._finished)
            try:
                if not self._has_end_file:
                    self._session.journal.append(self._finished)
            except Exception as failure:
                recorder.refuse_error(LOST, failure)
            self._is_written = True
        self.is_over = True
        self._session.close(at_exit=self._has_end_file)
        recorder.memory.close()

    def _end_spans(self, error: BaseException | None) -> None:
        """End the spans that are current here, and the step; none is current afterwards."""
        if self._steps.before_end is not None:
            self._steps.before_end()
        span, outer = trace.get_current_span(), None
        while isinstance(span, JournaledSpan):
            _end_span(span, error)
            outer = span._outer
            span = trace.get_current_span(outer)
        if outer is not None:
            context.attach(outer)
        if self._steps.open is not None:
            _end_span(self._steps.open, error)

    def _seconds(self, timeout: object) -> float:
        """Return the timeout as seconds; the default if it is invalid."""
        try:
            seconds = float(timeout)  # type: ignore[arg-type] # what cannot be converted raises
            if not math.isnan(seconds):
                # `acquire` raises for seconds beyond TIMEOUT_MAX, such as infinity; half of it leaves room for the sum
                # with the clock.
                return min(max(seconds, 0.0), threading.TIMEOUT_MAX / 2)
        except Exception as error:
            let_pass(error)
        self._recorder.refuse("timeout", f"finish(timeout={shown(timeout)}): not a number of seconds")
        return PATIENCE_S


def _end_span(span: JournaledSpan, error: BaseException | None) -> None:
    if error is not None and span.is_recording() and ending_by(error).outcome != "finished":
        span._fail(error)
    span.end()


class _Interpreter:
    """The exceptions that the interpreter holds, without those from before the run.

    It installs no hook; `sys.excepthook` stays unchanged.
    """

    def __init__(self) -> None:
        # Their ids alone: an exception that is kept holds its frames, and the tensors in them.
        self._before = {id(error) for error in (sys.exc_info()[1], _last_uncaught())}

    def handled(self) -> BaseException | None:
        """Return the exception that a surrounding `except` or `finally` block is handling."""
        return self._of_this_run(sys.exc_info()[1])

    def uncaught(self) -> BaseException | None:
        """Return the exception that ended the process; an interactive session continues after one, so it has none."""
        return None if hasattr(sys, "ps1") else self._of_this_run(_last_uncaught())

    def _of_this_run(self, error: BaseException | None) -> BaseException | None:
        return None if id(error) in self._before else error


def _last_uncaught() -> BaseException | None:
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
