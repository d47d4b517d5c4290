"""Lightning: its logger for values, and a callback for steps and phases.

    trainer = Trainer(logger=OtelRlLogger(project="sft"), callbacks=[OtelRlCallback()])

The logger records values on the main process alone, as Lightning's loggers do; steps and phases are those of all ranks.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording, unless_set
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.settings.launcher import find_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.frameworks.patches import Patches

_log = log_of("otel_rl")


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
        """The recording. The first access begins it, and the first one after another training has taken its place."""
        if self._recording is None or not self._recording.is_open:
            self._recording = Recording(self, self._recording, **(_place() | self._options))
        return self._recording

    def begin_training(self, first: int) -> None:
        """Begin another training if its first step was recorded before."""
        if (before := self._recording) is not None and before.number is not None and first <= before.number:
            self._recording = Recording(self, before if first else None, **(_place() | self._options))

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
        self.recording.log(metrics, step)

    @rank_zero_only  # type: ignore[untyped-decorator] # Lightning's own
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Record hyper-parameters."""
        self.recording.run.params(params)

    def finalize(self, status: str) -> None:
        """End the training. The run stays open for evaluations, until the next training or the end of the process."""
        if self._recording is not None and status == "failed":
            self._recording.abandon()
        elif self._recording is not None:
            self._recording.rest()


class OtelRlCallback(Callback):  # type: ignore[misc] # mypy does not read Lightning's types
    """A callback that makes steps and phases of the fit loop, in the run of the trainer's `OtelRlLogger` if it has one.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run or such a logger exists.
    """

    def __init__(self, **options: Any) -> None:
        self._logger = OtelRlLogger(**options)
        self._recording: Recording | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the training."""
        with harmless("on_train_start"):
            self._logger = next(
                (logger for logger in trainer.loggers if isinstance(logger, OtelRlLogger)), self._logger
            )
            self._logger.begin_training(trainer.fit_loop.epoch_loop._batches_that_stepped)
            self._recording = self._logger.recording

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin the step, unless gradients are accumulated in one that has begun."""
        if self._recording is not None:
            self._recording.begin_step(trainer.fit_loop.epoch_loop._batches_that_stepped)
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
        if self._recording is not None:
            self._recording.rest()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the step with the exception."""
        if self._recording is not None:
            self._recording.abandon(exception)

    def _begin(self, name: str) -> None:
        if self._recording is not None:
            self._recording.begin_phase(name)


def _place() -> dict[str, Any]:
    """Return rank, number of ranks and identity of a run whose processes Lightning has started; else nothing.

    Lightning sets no `RANK`, and removes `WORLD_SIZE` after each `fit` or `validate`, so that the settings miss them.
    """
    ranks: Any = sys.modules["torch.distributed"]  # Lightning imports it
    if "RANK" in os.environ or not ranks.is_available() or not ranks.is_initialized():
        return {}
    place = find_place({**os.environ, "RANK": str(ranks.get_rank()), "WORLD_SIZE": str(ranks.get_world_size())})
    return unless_set(id=place.id or "", rank=place.rank, world_size=place.world_size)


def patch(module: Any, patches: Patches) -> None:
    """Add a callback to every new trainer, and a logger to those that have one."""

    def init(trainer: Any, _: dict[str, Any]) -> None:
        if not trainer.loggers:
            _log.warning("Lightning logs nothing with logger=False; give Trainer a logger to record values")
        elif not any(isinstance(one, OtelRlLogger) for one in trainer.loggers):
            trainer.loggers = [*trainer.loggers, OtelRlLogger()]
        if not any(isinstance(one, OtelRlCallback) for one in trainer.callbacks):
            trainer.callbacks.append(OtelRlCallback())

    patches.observe(module, "Trainer.__init__", (), init, what="Trainer.__init__")
