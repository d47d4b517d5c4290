"""Lightning: its logger, and a callback.

    trainer = Trainer(logger=OtelRlLogger(project="sft"), callbacks=[OtelRlCallback()])

What modules log is recorded under its own names at Lightning's own steps (batches after which an optimiser stepped,
counted from 0); hyper-parameters too. The callback makes steps of them, with the phases `training_step` (the forward
pass with the loss), `backward`, `optimizer_step` and `validation`. With several devices the main process alone records
what is logged, as Lightning's loggers do.
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


class OtelRlLogger(Logger):  # type: ignore[misc] # mypy is told of no types of Lightning
    """A logger of Lightning's.

    Args:
        options: What `otel_rl.init` takes; without effect where there is a run already.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._recording: Recording | None = None

    @property
    def recording(self) -> Recording:
        """The recording, which begins when it is asked for."""
        if self._recording is None:
            self._recording = Recording(**self._options)
        return self._recording

    @property
    def name(self) -> str:
        """What the run is called."""
        return "otel_rl"

    @property
    def version(self) -> str:
        """The run's identity."""
        return self.recording.run.id

    @rank_zero_only  # type: ignore[untyped-decorator] # Lightning's own
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Record values; the epoch that Lightning adds is one of them."""
        self.recording.run.log(metrics, step=step)

    @rank_zero_only  # type: ignore[untyped-decorator] # Lightning's own
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Record hyper-parameters."""
        self.recording.run.params(params)

    def finalize(self, status: str) -> None:
        """End the run, if it was begun here."""
        if self._recording is not None:
            self._recording.finish()
            self._recording = None


class OtelRlCallback(Callback):  # type: ignore[misc] # mypy is told of no types of Lightning
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
        """The loss is known."""
        self._begin("backward")

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """The gradients are known."""
        self._begin("")

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """The optimiser begins."""
        self._begin("optimizer_step")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The batch is done; its step lasts until the next one begins, so that what is logged is in it."""
        self._begin("")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation begins."""
        self._begin("validation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Validation ends."""
        self._begin("")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the last step."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the step with what went wrong in it."""
        self._end(exception)

    def _begin(self, name: str) -> None:
        """End the phase that is open, and begin another one in the step, if there is one."""
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
