"""How a process ends: normally, by an exception, or by a signal that Python turned into an exception."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.texts import text_of, type_of
from otel_rl.recorder.facts.processes import CANCELLING
from otel_rl.recorder.files import exit_status, signals
from otel_rl.recorder.journal.records import Finished

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.export import Outcome

BY_SIGNAL = 128  # a shell reports a process that was ended by signal N with status 128 + N
# A generator that is closed leaves its `with` blocks by `GeneratorExit`, and has not failed
# (recorder/trainer/test_journaled.py).
_NO_FAILURES = (StopIteration, StopAsyncIteration, GeneratorExit)


class Ending(NamedTuple):
    """The end of a process, with the fields of `otel_rl.recorder.journal.records.Finished`."""

    outcome: Outcome = "finished"
    error: tuple[str, str] | None = None
    exit_code: int = 0


def ending_by(error: BaseException | None) -> Ending:
    """Return how a process ends that exits with this exception, or with none."""
    if error is None or isinstance(error, _NO_FAILURES):
        return Ending()
    if isinstance(error, KeyboardInterrupt):
        return _by_signal(signal.SIGINT)
    if not isinstance(error, SystemExit):
        return Ending("failed", (type_of(error), text_of(error)), 1)
    if error.code is None or isinstance(error.code, int):
        # The kernel keeps 8 bits of a status: `sys.exit(256)` is a success for whoever waits for the process.
        return ending_by_status((error.code or 0) & 0xFF)
    return Ending("failed", (type_of(error), text_of(error.code)), 1)  # a text, which Python prints


def ending_by_status(status: int) -> Ending:
    """Return how a process with this exit status ended; the status is 0 to 255."""
    if status - BY_SIGNAL in signal.valid_signals():  # such as `sys.exit(143)` in a handler of SIGTERM
        return _by_signal(status - BY_SIGNAL)
    return Ending("failed", (SystemExit.__name__, f"exit code {status}"), status) if status else Ending()


def _by_signal(number: int) -> Ending:
    name = _name(number)
    outcome: Outcome = "cancelled" if name in CANCELLING else "crashed"
    return Ending(outcome, (name, signal.strsignal(number) or ""), BY_SIGNAL + number)


def _name(number: int) -> str:
    """Return the name of a signal; of the real-time signals, Python names the first and the last one only."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def leave_end(journal: Path, end: Finished) -> bool:
    """Write the end known at `atexit` next to the records, for the exit status to follow; return whether it will."""
    return exit_status.leave(journal, msgspec.msgpack.encode(end))


def end_by_exit(journal: Path) -> Finished | None:
    """Return how an exited process ended; `None` if it did not call `leave_end`."""
    try:
        content, status = exit_status.read(journal) or (b"", None)
        end = msgspec.msgpack.decode(content, type=Finished)
    except UNDECODABLE:
        return None
    # At `atexit`, `sys.exit(3)` looks like a normal end: only the status that the C library appends shows it
    # (faults/test_finish.py).
    return end if status in (None, end.exit_code) else Finished(end.time, *ending_by_status(status))


def end_by_signal(journal: Path) -> Finished | None:
    """Return how a process that has died ended, if a signal ended it that nobody handled."""
    if (ended := signals.ended_by(journal)) is None:
        return None
    number, time = ended
    return Finished(time, *ending_by_status(BY_SIGNAL + number))
