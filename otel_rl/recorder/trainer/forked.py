"""Forked children of a process that records: workers of a Pool, of a DataLoader, of an evaluation.

A child has the run of its parent. Its values are in a journal of its own, as those of a process with the role `worker`.
The journal begins with the first record that is not a phase or a step, so a child that logs nothing costs nothing.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from opentelemetry import trace

from otel_rl.recorder.devices.accelerators import Devices
from otel_rl.recorder.devices.host_memory import MemoryReader
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.journal.ids import RandomIds
from otel_rl.recorder.journal.records import SpanEnded, SpanStarted, StepEnded, StepStarted
from otel_rl.recorder.journal.sink import UNOPENED
from otel_rl.recorder.settings.settings import Memory
from otel_rl.recorder.trainer.current import end_with_process, forget_ended, open_runs
from otel_rl.recorder.trainer.finishing import Delivery, RunEnd
from otel_rl.recorder.trainer.printed import PrintedLines
from otel_rl.recorder.trainer.spans import JournaledSpan

if TYPE_CHECKING:
    import msgspec

    from otel_rl.recorder.journal.ending import Ending
    from otel_rl.recorder.trainer.run import Run

logger = log_of("otel_rl")


class FirstRecord:
    """The sink of a forked child that has recorded nothing yet; its first value begins the journal of the child."""

    asks_at = 0

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._open: dict[object, msgspec.Struct] = {}  # phases and steps without a value so far

    def append(self, record: msgspec.Struct) -> None:
        """Begin the journal of the child with the record, unless it is of a phase or a step."""
        match record:
            case SpanStarted():
                self._open[record.span_id] = record
            case SpanEnded():
                self._open.pop(record.span_id, None)
            case StepStarted():
                self._open["step"] = record
            case StepEnded():
                self._open.pop("step", None)
            case _:
                with self._lock:
                    self._begin()
                for each in (*self._open.values(), record):
                    self._run._recorder._journal.append(each)
                self._open.clear()

    def _begin(self) -> None:
        run = self._run
        if run._recorder._journal is not self:
            return  # another thread was first
        try:
            session = run._session.for_child()
        except Exception as error:
            let_pass(error)
            logger.warning("what this forked process logs is not recorded: %s", text_of(error))
            run._recorder._journal = UNOPENED
            return
        run._session = run._recorder._session = session
        run._recorder._journal = session.journal
        run._end = RunEnd(run._steps, session, PrintedLines(run._recorder, session.settings.output))
        run._end.when_over = forget_ended
        run._end.printed.begin()
        end_with_process(os.getpid())


class _NoEnd(RunEnd):
    """The end of a run in a forked child that has recorded nothing, which leaves it to its parent."""

    def end(self, timeout: object, error: BaseException | None, ending: Ending | None = None) -> Delivery:
        """Return that nothing was recorded."""
        return Delivery(False, missing="this forked process has recorded nothing")


def is_inherited(run: Run) -> bool:
    """Return whether this forked child has the run from its parent, and has recorded nothing."""
    return isinstance(run._end, _NoEnd)


def _continue_in_child() -> None:
    for run in open_runs():
        _leave_to_parent(run)


def _leave_to_parent(run: Run) -> None:
    """Let this forked child record into a journal of its own: the open one, and its lock, are the parent's."""
    run._session.leave_to_parent()
    recorder, steps = run._recorder, run._steps
    recorder._journal = FirstRecord(run)
    recorder._refusals, recorder._mistakes = {}, {}
    recorder.ids, recorder.memory = RandomIds(), MemoryReader()
    recorder.devices = Devices(recorder.write, recorder.refuse, Memory(), modules={})
    steps.leave_to_parent()
    span = trace.get_current_span()
    while isinstance(span, JournaledSpan):  # they are the parents of the child's phases, and end in the parent
        span._ended = True
        span = trace.get_current_span(span._outer)
    run._end = _NoEnd(steps, run._session, run._end.printed)


# A forked child has the same mapped segment, and would write over the records of its parent
# (recorder/trainer/test_processes.py).
os.register_at_fork(after_in_child=_continue_in_child)
