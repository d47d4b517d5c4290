"""Signals that stop a service of otel-rl."""

from __future__ import annotations

import _thread
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from types import FrameType

_LOOK_S = 1.0


def set_at(numbers: tuple[signal.Signals, ...], stopped: threading.Event, *, kill_after_s: int = 0) -> None:
    """Set an event when one of these signals arrives.

    Another thread sets the event, because the signal can interrupt this thread while it holds the event's lock.

    Args:
        numbers: The signals.
        stopped: The event.
        kill_after_s: Seconds after the signal at which the kernel ends the process with SIGALRM, even if C code hangs
            while it holds the GIL; 0 for never.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        if kill_after_s:
            signal.alarm(kill_after_s)
        _thread.start_new_thread(stopped.set, ())

    if kill_after_s:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in numbers:
        signal.signal(number, stop)


def wait(stopped: threading.Event) -> None:
    """Wait for an event that `set_at` sets.

    The kernel may deliver the signal to another thread, which does not interrupt this wait. So it polls.
    """
    while not stopped.wait(_LOOK_S):
        pass
