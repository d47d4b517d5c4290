"""TRL, and every trainer on `transformers.Trainer`.

One line:

    trainer = GRPOTrainer(…)
    record(trainer)                                # or: record(trainer, project="grpo", exporters=["wandb"])

Or change no code: `otel-rl run -- python train.py`. It records into the current run, or begins one that `OTEL_RL_*`
variables configure. Rows have the names that trackers get (`train/reward`, `eval/loss`) at the trainer's own steps,
which count from 1. Arguments are hyper-parameters. A step lasts until the next one begins, so it includes evaluations
and checkpoints. A second training in one script gets its own series, see `otel_rl.integrations.recording`.

Phases are the functions that TRL profiles (`_generate`, each reward function, `_get_per_token_logps_and_entropies`,
`compute_loss`, `sync_weights`), and `training_step`, `backward`, `clip_grad_norm`, `optimizer_step`,
`get_batch_samples`, `log`, `evaluate`, `save_checkpoint`. Reward functions are parts of the phase `_calculate_rewards`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from transformers import TrainerCallback
from transformers.integrations.integration_utils import rewrite_logs

import otel_rl
from otel_rl.integrations.instrument import instrument
from otel_rl.integrations.patches import Patches, harmless
from otel_rl.integrations.recording import Recording
from otel_rl.trainer.current import recorder_of
from otel_rl.trainer.phase import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.trainer.no_span import NoSpan
    from otel_rl.trainer.step import StepSpan

_BATCH = "get_batch_samples"
_METHODS = {
    "training_step": "training_step",
    _BATCH: _BATCH,
    "_clip_grad_norm": "clip_grad_norm",
    "log": "log",
    "evaluate": "evaluate",
    "_save_checkpoint": "save_checkpoint",
}
"""Methods of a trainer that are phases, and the names of the phases."""
_REWARDS = "_calculate_rewards"
"""The phase in which TRL profiles each reward function by its name. The functions are parts of the phase."""
_ATTRIBUTE = "_otel_rl_phase"


def record(trainer: Any, **options: Any) -> None:
    """Record a trainer.

    Args:
        trainer: TRL's, or any other on `transformers.Trainer`.
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """
    instrument("trl")
    trainer.add_callback(OtelRlCallback(**options))
    time_methods(trainer)


class OtelRlCallback(TrainerCallback):  # type: ignore[misc] # mypy does not read transformers' types
    """A callback that records values, steps and the phase of the optimizer; `record` adds the other phases.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._recording: Recording | None = None
        self._has_trained = False
        self._step: StepSpan | NoSpan | None = None
        self._number = -1
        self._optimizer: Phase | NoSpan | None = None
        self._tokens = 0

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Do nothing: the trainer may never train."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to record into the current run, or into a new one.

        A trainer that has trained before and has steps continues its training. Otherwise it is another training.
        """
        continues = self._has_trained and state.global_step > 0
        self._recording = Recording(continues=continues, **{"dialect": "trl", **self._options})
        self._has_trained = True
        self._recording.run.params(args.to_dict())
        self._tokens = _tokens_seen(state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a step, unless it has begun with its batch. The previous one ends here."""
        self.begin_step(state.global_step + 1)

    def begin_step(self, number: int) -> None:
        """Begin a step, unless it is the open one. The previous one ends here."""
        with harmless("step"):
            if self._recording is not None and number != self._number:
                self._end_step()
                self._number = number
                self._step = self._recording.run.step(number)
                self._step.__enter__()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the phase `optimizer_step`."""
        with harmless("on_pre_optimizer_step"):
            if self._recording is not None:
                self._optimizer = self._recording.run.phase("optimizer_step")
                self._optimizer.__enter__()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the phase `optimizer_step`."""
        with harmless("on_optimizer_step"):
            if self._optimizer is not None:
                self._optimizer.__exit__(None, None, None)
                self._optimizer = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the number of tokens of the step, if the trainer counts them."""
        with harmless("on_step_end"):
            seen = _tokens_seen(state)
            if self._recording is not None and seen > self._tokens and state.is_world_process_zero:
                self._recording.run.log({"tokens/step": seen - self._tokens}, step=state.global_step)
            self._tokens = seen

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Record the values that the trainer logs, on the first rank only, as trackers do."""
        with harmless("on_log"):
            if self._recording is not None and logs and state.is_world_process_zero:
                logged = {**(state.log_history[-1] if state.log_history else {}), **logs}  # callbacks remove some
                numbers = {name: n for name, n in logged.items() if name != "step" and isinstance(n, (int, float))}
                self._recording.run.log(rewrite_logs(numbers), step=state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the step, and the run if this callback began it."""
        with harmless("on_train_end"):
            self._end_step()
            if self._recording is not None:
                self._recording.finish()
                self._recording = None

    def fail(self, error: BaseException) -> None:
        """End the step with the exception."""
        with harmless("step"):
            self._end_step(error)
            if self._recording is not None:
                self._recording.abandon()

    def _end_step(self, error: BaseException | None = None) -> None:
        step, self._step, self._number = self._step, None, -1
        if step is not None:
            step.__exit__(None if error is None else type(error), error, None)


def patch_trainer(module: Any, patches: Patches) -> None:
    """Add a callback to every new trainer."""

    def init(function: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        function(*args, **kwargs)
        with harmless("Trainer.__init__"):
            if not _callbacks(trainer):
                trainer.add_callback(OtelRlCallback())
            time_methods(trainer)

    patches.wrap(module, "Trainer.__init__", init)


def patch_profiling(module: Any, patches: Patches) -> None:
    """Record the functions that TRL profiles as phases."""

    def enter(function: Callable[..., Any], profile: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with harmless("ProfilingContext"):
            run = otel_rl.current()
            if run is not None:
                name = str(profile.name).partition(".")[2] or str(profile.name)
                around = trace.get_current_span()
                if isinstance(around, Phase) and around.phase == _REWARDS:
                    phase: Phase | NoSpan = around.part(name)
                else:
                    phase = run.phase(name)
                phase.__enter__()
                setattr(profile, _ATTRIBUTE, phase)
        return function(*args, **kwargs)

    def leave(function: Callable[..., Any], profile: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            with harmless("ProfilingContext"):
                phase = profile.__dict__.pop(_ATTRIBUTE, None)
                if phase is not None:
                    phase.__exit__(*args)

    patches.wrap(module, "ProfilingContext.__enter__", enter)
    patches.wrap(module, "ProfilingContext.__exit__", leave)


def time_methods(trainer: Any) -> None:
    """Record methods of one trainer as phases, whatever class overrides them."""
    for name, phase in _METHODS.items():
        if hasattr(trainer, name):
            setattr(trainer, name, _timed(getattr(trainer, name), phase, trainer))
    accelerator = getattr(trainer, "accelerator", None)
    if accelerator is not None and not hasattr(accelerator.backward, "__wrapped__"):
        accelerator.backward = _timed(accelerator.backward, "backward", None)


def _timed(method: Callable[..., Any], name: str, trainer: Any) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if name == _BATCH:  # transformers gets the batch of a step before `on_step_begin`
            for callback in _callbacks(trainer):
                callback.begin_step(trainer.state.global_step + 1)
        run = otel_rl.current()
        if run is None or recorder_of(run).open_step is None:
            return method(*args, **kwargs)
        try:
            with run.phase(name):
                return method(*args, **kwargs)
        except BaseException as error:
            for callback in _callbacks(trainer):
                callback.fail(error)
            raise

    return call


def _callbacks(trainer: Any) -> list[OtelRlCallback]:
    known = [] if trainer is None else trainer.callback_handler.callbacks
    return [callback for callback in known if isinstance(callback, OtelRlCallback)]


def _tokens_seen(state: Any) -> int:
    return int(getattr(state, "num_input_tokens_seen", 0) or 0)
