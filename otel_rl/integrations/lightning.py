"""Lightning: its logger, and a callback.

    trainer = Trainer(logger=OtelRlLogger(project="sft"), callbacks=[OtelRlCallback()])

The logger records the values that modules log, under their names, and hyper-parameters. Steps are Lightning's own:
batches after which an optimizer stepped, counted from 0. The callback makes steps with the phases `training_step` (the
forward pass with the loss), `backward`, `optimizer_step` and `validation`. With several devices, only the main process
records logged values, as with Lightning's loggers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

import otel_rl
from otel_rl.integrations.patches import harmless
from otel_rl.integrations.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.trainer.no_span import NoSpan
    from otel_rl.trainer.phase import Phase
    from otel_rl.trainer.step import StepSpan


class OtelRlLogger(Logger):  # type: ignore[misc] # mypy does not read Lightning's types
    """A logger for Lightning.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._recording: Recording | None = None

    @property
    def recording(self) -> Recording:
        """The recording. The first access begins it."""
        if self._recording is None:
            self._recording = Recording(**self._options)
        return self._recording

    @property
    def name(self) -> str:
        """The name of the logger."""
        return "otel_rl"

    @property
    def version(self) -> str:
        """The id of the run."""
        return self.recording.run.id

    @rank_zero_only  # type: ignore[untyped-decorator] # Lightning's own
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Record values, with the epoch that Lightning adds."""
        self.recording.run.log(metrics, step=step)

    @rank_zero_only  # type: ignore[untyped-decorator] # Lightning's own
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Record hyper-parameters."""
        self.recording.run.params(params)

    def finalize(self, status: str) -> None:
        """End the run, if this object began it."""
        if self._recording is not None:
            self._recording.finish()
            self._recording = None


class OtelRlCallback(Callback):  # type: ignore[misc] # mypy does not read Lightning's types
    """Makes steps and phases of the fit loop."""

    def __init__(self) -> None:
        self._step: StepSpan | NoSpan | None = None
        self._number = -1
        self._phase: Phase | NoSpan | None = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin the step, unless gradients are accumulated in one that has begun."""
        with harmless("on_train_batch_start"):
            number = trainer.fit_loop.epoch_loop._batches_that_stepped
            run = otel_rl.current()
            if run is not None and number != self._number:
                self._end()
                self._number = number
                self._step = run.step(number)
                self._step.__enter__()
            self._begin("training_step")

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Begin the phase `backward`."""
        self._begin("backward")

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """End the phase `backward`."""
        self._begin("")

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Begin the phase `optimizer_step`."""
        self._begin("optimizer_step")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End the phase. The step lasts until the next one begins, so that it includes what is logged."""
        self._begin("")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the phase `validation`."""
        self._begin("validation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End the phase `validation`."""
        self._begin("")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the last step."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the step with the exception."""
        self._end(exception)

    def _begin(self, name: str) -> None:
        """End the open phase, and begin another one if a step is open and `name` is not empty."""
        with harmless("phase"):
            phase, self._phase = self._phase, None
            if phase is not None:
                phase.__exit__(None, None, None)
            run = otel_rl.current()
            if name and run is not None and self._step is not None:
                self._phase = run.phase(name)
                self._phase.__enter__()

    def _end(self, error: BaseException | None = None) -> None:
        self._begin("")
        with harmless("step"):
            step, self._step = self._step, None
            if step is not None:
                step.__exit__(None if error is None else type(error), error, None)
