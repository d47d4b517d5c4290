"""The run of this process: the same in all of its threads and contexts.

A process records one run at a time, except for trackers that have several open: the oldest of them is current.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from _thread import RLock
from typing import TYPE_CHECKING

from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.journal.ending import ending_by_status

if TYPE_CHECKING:
    from otel_rl.recorder.trainer.recorder import Recorder
    from otel_rl.recorder.trainer.run import Run
    from otel_rl.recorder.trainer.step import Steps

_PATIENCE_S = 120.0
"""Seconds to wait for another thread that begins a run, which waits at most 60 s for its agent."""
_WAITED = (
    f"another thread has been beginning a run for {_PATIENCE_S:g} s: call init() before the other threads are started"
)
_open: list[Run] = []
"""The runs that this process records, in the order of their beginnings."""


# A subclass: a `__exit__` in Python could be interrupted before it releases the lock (faults/test_interrupts.py).
class _Turn(RLock):  # type: ignore[misc] # typeshed has it final; CPython lets it have subclasses
    """The turn to begin a run: one thread at a time looks whether there is a run, and begins one if there is none."""

    def __enter__(self) -> bool:  # type: ignore[override] # without arguments
        # With a limit: a thread that imports the module of an exporter may wait for a thread that waits here.
        if not self.acquire(timeout=_PATIENCE_S):
            raise SettingsError(_WAITED)
        return True


_turn = _Turn()


def turn() -> _Turn:
    """Return the turn to begin a run, to be held from the question whether there is one until it has begun."""
    return _turn


def current() -> Run | None:
    """Return the run that this process records, `None` before `init` and after `finish`.

    It is the same in all threads and contexts.
    """
    for run in open_runs():
        if not run._end.is_over:
            return run
    return None


def add(run: Run) -> None:
    """Count a run among those that this process records, until it is finished."""
    _open.append(run)


def open_runs() -> tuple[Run, ...]:
    """Return the runs that this process records, the oldest first."""
    # A copy: another thread may end one.
    return (*_open,)


def forget(run: Run) -> None:
    """Leave a run to the process that began it."""
    _open.remove(run)


def is_open(run: Run | None) -> bool:
    """Return whether this process records a run."""
    return run is not None and not run._end.is_over and run in _open


def forget_ended() -> None:
    """Forget the runs that have ended: a process may record thousands."""
    for run in open_runs():
        if run._end.is_over and run in _open:
            _open.remove(run)


# Once in a process: with a function for each run, `atexit` kept all that the runs had held
# (recorder/trainer/test_many_runs.py).
@functools.cache
def end_with_process(_pid: int) -> None:
    """Let the runs that this process records when it exits end then."""
    atexit.register(_at_exit)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:  # such a process ends without atexit
        from multiprocessing import util

        util.Finalize(None, _in_child, exitpriority=100)


def _at_exit() -> None:
    for run in open_runs():
        run._end.at_exit()


def _in_child() -> None:
    for run in open_runs():
        run._end.in_child()


def end_by_status(status: int) -> None:
    """End the runs of this process, which exits with this status without anything else that runs at an exit."""
    for run in open_runs():
        run._end.end(0, None, ending_by_status(status & 0xFF))


def end_by_error(error: BaseException, timeout: float) -> None:
    """End the runs of this process, which this error ends, and wait so many seconds for the exporters."""
    for run in open_runs():
        run._end.end(timeout, error)


def recorder_of(run: Run) -> Recorder:
    """Return the recorder of a run, for integrations."""
    return run._recorder


def was_first(run: Run) -> bool:
    """Return whether this process was the first one of the run's attempt."""
    from otel_rl.recorder.directory.attempts import began  # only the start of a run needs it

    return began(run._session.directory, run.attempt)


def steps_of(run: Run) -> Steps:
    """Return the steps of a run, for integrations."""
    return run._steps


def _renew_turn() -> None:
    global _turn
    _turn = _Turn()


# Another thread of the parent may have had the turn at the fork (recorder/trainer/test_beginnings.py).
os.register_at_fork(after_in_child=_renew_turn)
