"""Plain PyTorch loops, such as CleanRL's: their optimizers are the steps.

    otel-rl run --instrument torch --capture tensorboard -- python train.py

If a tracker is captured, a step is the work between two values that the loop logs, and has the number at which it logs
next. Until that is known, its phases are kept in memory. Otherwise, a step begins with the first `backward` after a
step of the optimizer. With several optimizers, the first one that steps counts.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks import capture
from otel_rl.frameworks.instrument import active
from otel_rl.frameworks.loop_counter import LoopCounter, usual_counter
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording
from otel_rl.frameworks.tracker_runs import TRACKER_RUNS
from otel_rl.frameworks.unnumbered import UnnumberedWork
from otel_rl.recorder.trainer.current import steps_of
from otel_rl.semconv.frameworks import hooked

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from otel_rl.frameworks.patches import Patches
    from otel_rl.recorder.trainer.run import Run
    from otel_rl.recorder.trainer.step import Steps


class _TrainingLoop:
    """The loop of this process: its recording, and the optimizer whose steps are counted."""

    def __init__(self) -> None:
        self._phase: AbstractContextManager[object] | None = None
        self._begin_training(None)

    def _begin_training(self, recording: Recording | None) -> None:
        self._recording = recording
        self._optimizer: int | None = None
        self._has_stepped = True
        self._counter = LoopCounter()
        self._awaits_log = False
        self._work: UnnumberedWork | None = None

    def see(self, step: int) -> None:
        """Note the step of a value that is captured."""
        if not self._awaits_log:
            return
        self._awaits_log = False
        self._counter.learn(step)
        if (work := self._work) is not None:
            work.number = step
            if work.thread == get_ident():
                self._number_work()

    def begin_step(self) -> None:
        """Begin a step, unless the optimizer has not stepped since the last one, or somebody else makes steps."""
        if self._recording is None or not self._recording.is_open:
            run = otel_rl.current()
            if run is not None and steps_of(run).last_begun >= 0:
                return
            TRACKER_RUNS.begin_newest()  # which has a name and a project
            self._begin_training(Recording(self))
        if (recording := self._recording) is None:
            return
        run = otel_rl.current() or recording.run
        steps = steps_of(run)
        if not self._has_stepped or recording.number not in (None, steps.last_begun):
            return
        self._has_stepped = False
        if hooked("tracker").keys().isdisjoint(active()):
            recording.begin_step(steps.last_begun + 1)
        elif run._session.settings.rank == 0:
            self._begin_logged(recording, run, steps)
        elif (number := usual_counter()) is not None and number >= steps.last_begun:  # other ranks log nothing
            recording.begin_step(number)

    def phase(self, run: Run, name: str) -> AbstractContextManager[object]:
        """Return a phase, of the work whose step has no number yet if there is any."""
        return run.phase(name) if self._work is None else self._work.phase(name)

    def _begin_logged(self, recording: Recording, run: Run, steps: Steps) -> None:
        """Begin the step that the counter foretells, or work without a number, if the last step has been logged."""
        if (work := self._work) is not None and (work.number is not None or work.is_full):
            self._number_work()
        if self._work is not None or self._awaits_log:
            return
        number = self._counter.read()
        if number is not None and number >= steps.last_begun:
            recording.begin_step(number)
        else:
            self._work = UnnumberedWork(run)
            steps.before_end = self._number_work

    def _number_work(self) -> None:
        """Give the work its step: a new one, the open one if its number is not new; none if nothing was logged."""
        with harmless("step"):
            work, self._work = self._work, None
            if work is None or self._recording is None:
                return
            if work.number is None:
                self._recording.end_step(at=work.since)
            elif work.number > steps_of(self._recording.run).last_begun:
                self._recording.begin_step(work.number, since=work.since)
            work.record()

    def begin_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Begin the phase of an optimizer."""
        with harmless("optimizer_step"):
            if (run := otel_rl.current()) is not None:
                self._phase = self.phase(run, "optimizer_step")
                self._phase.__enter__()

    def end_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """End the phase of an optimizer, and note that it has stepped."""
        with harmless("optimizer_step"):
            phase, self._phase = self._phase, None
            if phase is not None:
                phase.__exit__(None, None, None)
            self._optimizer = self._optimizer or id(optimizer)
            if id(optimizer) == self._optimizer:
                self._has_stepped = self._awaits_log = True


_LOOP = _TrainingLoop()


def patch_autograd(module: Any, patches: Patches) -> None:
    """Record backward passes, the first of which begins a step."""
    capture.on_step.append(_LOOP.see)
    patches.at_undo(lambda: capture.on_step.remove(_LOOP.see))
    patches.wrap(module, "backward", partial(_timed, "backward", _LOOP.begin_step))


def patch_optimizer(module: Any, patches: Patches) -> None:
    """Record the steps of all optimizers, with the hooks that PyTorch has for it."""
    patches.at_undo(module.register_optimizer_step_pre_hook(_LOOP.begin_optimizer).remove)
    patches.at_undo(module.register_optimizer_step_post_hook(_LOOP.end_optimizer).remove)


def patch_data_loader(module: Any, patches: Patches) -> None:
    """Record the waits for batches."""
    patches.wrap(module, "_BaseDataLoaderIter.__next__", partial(_timed, "data", lambda: None))


def _timed(
    name: str,
    before: Callable[[], None],
    function: Callable[..., Any],
    instance: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    with harmless(name):
        before()
    if (run := otel_rl.current()) is None:
        return function(*args, **kwargs)
    with _LOOP.phase(run, name):
        try:
            return function(*args, **kwargs)
        except StopIteration as error:  # the end of an epoch, not of the phase
            end = error
    raise end
