"""The run of this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rl.trainer.recorder import Recorder
    from otel_rl.trainer.run import Run
    from otel_rl.trainer.step import Steps

_current: Run | None = None


def current() -> Run | None:
    """Return the run that this process records, `None` before `init` and after `finish`."""
    return None if _current is None or _current._end.is_over else _current


def make_current(run: Run | None) -> None:
    """Make this the run of this process, until it is finished."""
    global _current
    _current = run


def recorder_of(run: Run) -> Recorder:
    """Return the recorder of a run, for integrations."""
    return run._recorder


def steps_of(run: Run) -> Steps:
    """Return the steps of a run, for integrations."""
    return run._steps


def _silence_child() -> None:
    if (run := current()) is not None:
        run._recorder.go_silent()
        make_current(None)


os.register_at_fork(after_in_child=_silence_child)
