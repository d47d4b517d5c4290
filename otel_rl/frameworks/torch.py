"""Plain PyTorch loops, such as CleanRL's: their optimizers are the steps.

    otel-rl run --instrument torch --capture tensorboard -- python train.py

A step begins with the first `backward` after a step of the optimizer. With several optimizers, the first one that steps
counts. If a tracker is captured, the step has the number at which the loop logs next, and lasts while that stays.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks import capture
from otel_rl.frameworks.instrument import active
from otel_rl.frameworks.loop_counter import LoopCounter
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording
from otel_rl.recorder.trainer.current import steps_of
from otel_rl.semconv.frameworks import hooked

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.frameworks.patches import Patches
    from otel_rl.recorder.trainer.no_span import NoSpan
    from otel_rl.recorder.trainer.phase import Phase


class _TrainingLoop:
    """The loop of this process: its recording, and the optimizer whose steps are counted."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._optimizer: int | None = None
        self._has_stepped = True
        self._phase: Phase | NoSpan | None = None
        self._counter = LoopCounter()
        self._logged = -1
        self._awaits_log = False

    def see(self, step: int) -> None:
        """Note the step of a value that is captured."""
        if self._awaits_log:
            self._awaits_log = False
            self._counter.learn(step)
        self._logged = max(self._logged, step)

    def begin_step(self) -> None:
        """Begin a step, unless the optimizer has not stepped since the last one, or somebody else makes steps."""
        if self._recording is None or not self._recording.is_open:
            run = otel_rl.current()
            if run is not None and steps_of(run).last_begun >= 0:
                return
            self._recording = Recording(self)
        steps = steps_of(otel_rl.current() or self._recording.run)
        is_own_step = self._recording.number in (None, steps.last_begun)
        if self._has_stepped and is_own_step:
            self._has_stepped = False
            number = self._counter.read(guess=not hooked("tracker").keys().isdisjoint(active()))
            if number is None or number < steps.last_begun:
                number = max(steps.last_begun + 1, self._logged)
            self._recording.begin_step(number)

    def begin_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Begin the phase of an optimizer."""
        with harmless("optimizer_step"):
            if (run := otel_rl.current()) is not None:
                self._phase = run.phase("optimizer_step").__enter__()

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
    with run.phase(name):
        try:
            return function(*args, **kwargs)
        except StopIteration as error:  # the end of an epoch, not of the phase
            end = error
    raise end
