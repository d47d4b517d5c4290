"""The run of this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rl.trainer.recorder import Recorder
    from otel_rl.trainer.run import Run

_current: Run | None = None


def current() -> Run | None:
    """Return the run that this process records, `None` before `init` and after `finish`."""
    return _current


def make_current(run: Run | None) -> None:
    """Make this the run of this process, until it is finished."""
    global _current
    _current = run


def recorder_of(run: Run) -> Recorder:
    """Return the recorder of a run: for integrations, which end steps that they did not begin."""
    return run._recorder


def forget(recorder: Recorder) -> None:
    """Let this process have no run, if its run is that of the recorder."""
    global _current
    if _current is not None and _current._recorder is recorder:
        _current = None


def _silence_child() -> None:
    if _current is not None:
        _current._recorder.go_silent()
        make_current(None)


os.register_at_fork(after_in_child=_silence_child)
