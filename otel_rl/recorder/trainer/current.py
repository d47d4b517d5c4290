"""The run of this process, and others that are open at the same time."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from typing import TYPE_CHECKING

from otel_rl.recorder.journal.ending import ending_by_status

if TYPE_CHECKING:
    from otel_rl.recorder.trainer.recorder import Recorder
    from otel_rl.recorder.trainer.run import Run
    from otel_rl.recorder.trainer.step import Steps

_current: Run | None = None
_beside: list[Run] = []
"""The other open runs, in the order in which they began: runs of a tracker that are open at once."""


def current() -> Run | None:
    """Return the run that this process records, `None` before `init` and after `finish`."""
    return None if _current is None or _current._end.is_over else _current


def make_current(run: Run | None) -> None:
    """Make this the run of this process, until it is finished."""
    global _current
    _current = run


def record_beside(run: Run) -> None:
    """Let the process record this run too, until it is finished; the run of the process stays."""
    _beside.append(run)


def release() -> None:
    """Forget runs that have ended: a process may record thousands of runs. The oldest one that is left is the next."""
    _beside[:] = [run for run in _beside if not run._end.is_over]
    if current() is None:
        make_current(_beside.pop(0) if _beside else None)


def is_open(run: Run) -> bool:
    """Return whether this process records the run."""
    return not run._end.is_over and run in _open_runs()


def _open_runs() -> list[Run]:
    return [*([] if _current is None else [_current]), *_beside]


# Once in a process: with a function for each run, `atexit` kept all that the runs had held
# (recorder/trainer/test_many_runs.py).
@functools.cache
def end_with_process(_pid: int) -> None:
    """Let whichever run this process records when it exits end then."""
    atexit.register(_at_exit)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:  # such a process ends without atexit
        from multiprocessing import util

        util.Finalize(None, _in_child, exitpriority=100)


def _at_exit() -> None:
    for run in _open_runs():
        run._end.at_exit()


def _in_child() -> None:
    for run in _open_runs():
        run._end.in_child()


def end_by_status(status: int) -> None:
    """End the runs of this process, which exits with this status without anything else that runs at an exit."""
    for run in _open_runs():
        run._end.end(0, None, ending_by_status(status & 0xFF))


def recorder_of(run: Run) -> Recorder:
    """Return the recorder of a run, for integrations."""
    return run._recorder


def steps_of(run: Run) -> Steps:
    """Return the steps of a run, for integrations."""
    return run._steps


def _silence_child() -> None:
    for run in _open_runs():
        run._recorder.go_silent()
        run._session.leave_to_parent()
    _beside.clear()
    make_current(None)


# A forked child has the same mapped segment, and would write over the records of its parent
# (recorder/trainer/test_processes.py).
os.register_at_fork(after_in_child=_silence_child)
