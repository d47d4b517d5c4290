"""How a process ends: normally, by an exception, or by a signal that Python turned into an exception."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.errors.texts import text_of, type_of

if TYPE_CHECKING:
    from otel_rl.export import Outcome

BY_SIGNAL = 128  # a shell reports a process that was ended by signal N with status 128 + N
_NO_FAILURES = (StopIteration, StopAsyncIteration, GeneratorExit)


class Ending(NamedTuple):
    """The end of a process, with the fields of `otel_rl.journal.records.Finished`."""

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
        return ending_by_status((error.code or 0) & 0xFF)
    return Ending("failed", (type_of(error), text_of(error.code)), 1)  # a text, which Python prints


def ending_by_status(status: int) -> Ending:
    """Return how a process with this exit status ended; the status is 0 to 255."""
    if status - BY_SIGNAL in signal.valid_signals():  # such as `sys.exit(143)` in a handler of SIGTERM
        return _by_signal(status - BY_SIGNAL)
    return Ending("failed", (SystemExit.__name__, f"exit code {status}"), status) if status else Ending()


def _by_signal(number: int) -> Ending:
    return Ending("crashed", (_name(number), signal.strsignal(number) or ""), BY_SIGNAL + number)


def _name(number: int) -> str:
    """Return the name of a signal; of the real-time signals, Python names the first and the last one only."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"


class Interpreter:
    """The exceptions that the interpreter holds, without those from before the run.

    It installs no hook; `sys.excepthook` stays unchanged.
    """

    def __init__(self) -> None:
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
