"""TRL, and every trainer on `transformers.Trainer`: a callback, and its methods and profiled functions as phases.

    record(trainer)                                # or: record(trainer, project="grpo", exporters=["wandb"])

A step lasts until the next one begins, so it includes evaluations and checkpoints. The run ends with the process.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from opentelemetry import trace
from transformers import TrainerCallback
from transformers.integrations.integration_utils import rewrite_logs

import otel_rl
from otel_rl.frameworks import rollouts
from otel_rl.frameworks.instrument import instrument
from otel_rl.frameworks.maxent_grpo_slim import chosen_rows
from otel_rl.frameworks.patches import Patches, harmless, wrap_method
from otel_rl.frameworks.recording import Recording, unless_set
from otel_rl.frameworks.timers import Timers
from otel_rl.frameworks.trl_rollouts import rollouts_of
from otel_rl.recorder.trainer.phase import Phase
from otel_rl.semconv.frameworks import imported

if TYPE_CHECKING:
    from collections.abc import Callable

_METHODS = {
    "training_step": "training_step",
    "get_batch_samples": "get_batch_samples",
    "_clip_grad_norm": "clip_grad_norm",
    "log": "log",
    "evaluate": "evaluate",
    "_save_checkpoint": "save_checkpoint",
}
"""Methods of a trainer that are phases, and the names of the phases."""
_REWARDS = "_calculate_rewards"
"""The phase in which TRL profiles each reward function by its name."""
_GENERATE = "_generate_and_score_completions"


def record(trainer: Any, **options: Any) -> None:
    """Record a trainer.

    Args:
        trainer: TRL's, or any other on `transformers.Trainer`.
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """
    instrument("trl")
    (_callback_of(trainer) or _add_callback(trainer)).options.update(options)


class OtelRlCallback(TrainerCallback):  # type: ignore[misc] # mypy does not read transformers' types
    """A callback that records values, steps and the phase of the optimizer; `record` adds the other phases.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self._recording: Recording | None = None
        self._trained = -1
        self._tokens = 0

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Do nothing: the trainer may never train."""

    def recording(self, args: Any) -> Recording:
        """Return the recording. The first call begins it: with the training, or with an evaluation before it."""
        if self._recording is None:
            self._begin(args).rest()
        return cast("Recording", self._recording)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to record into the current run, or into a new one.

        A trainer that has trained before and has steps continues its training. Otherwise it is another training.
        """
        if self._recording is None or not self._recording.is_open or state.global_step < self._trained:
            self._begin(args, self._recording if state.global_step else None)
        self._tokens = _tokens_seen(state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a step, unless it has begun with its batch. The previous one ends here."""
        self.begin_step(state)

    def begin_step(self, state: Any) -> None:
        """Begin the step that the trainer does next."""
        if self._recording is not None:
            self._recording.begin_step(state.global_step + 1)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the phase `optimizer_step`."""
        if self._recording is not None:
            self._recording.begin_phase("optimizer_step")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the phase `optimizer_step`."""
        if self._recording is not None:
            self._recording.begin_phase()

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
            if logs and state.is_world_process_zero:
                history = state.log_history[-1] if state.log_history else {}  # `logs` before callbacks change it
                logged = {**logs, **(history if history.get("step") == state.global_step else {})}
                self._log(args, state, logged)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Record the metrics of predictions, which the trainer passes to callbacks alone."""
        with harmless("on_predict"):
            if metrics and state.is_world_process_zero:
                self._log(args, state, metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the step. The run stays open for evaluations, until the next training or the end of the process."""
        self._trained = state.global_step
        if self._recording is not None:
            self._recording.rest()

    def record_rollouts(self, trainer: Any, batch: object) -> None:
        """Record what was generated for the next steps, if texts may leave the process."""
        recording = self.recording(trainer.args)
        if trainer.model.training and recording.keeps_texts and "rewards" in trainer._logs:
            rollouts.record(recording.run, trainer.state.global_step + 1, rollouts_of(trainer, batch))

    def fail(self, error: BaseException) -> None:
        """End the step with the exception."""
        if self._recording is not None:
            self._recording.abandon(error)

    def _log(self, args: Any, state: Any, logged: dict[str, Any]) -> None:
        values = {name: value for name, value in logged.items() if name != "step"}
        # The names that transformers gives its trackers: `eval_loss` is `eval/loss` there.
        self.recording(args).log(rewrite_logs(values), state.global_step)

    def _begin(self, args: Any, after: Recording | None = None) -> Recording:
        dialect = imported(sys.modules) or "trl"
        name = args.run_name or ""
        # Older versions of transformers put the directory there.
        named = unless_set(dialect=dialect, name="" if name == args.output_dir else name)
        rows = chosen_rows() if dialect == "maxent_grpo" else {}
        self._recording = Recording(self, after, **(named | rows | self.options))
        self._recording.run.params(args.to_dict())
        return self._recording


def patch_trainer(module: Any, patches: Patches) -> None:
    """Add a callback to every new trainer; a callback that the script adds replaces it."""

    def init(trainer: Any, _: dict[str, Any]) -> None:
        if _callback_of(trainer) is None:
            _add_callback(trainer)
        time_methods(trainer)

    def add(handler: Any, given: dict[str, Any]) -> None:
        if isinstance(given["callback"], OtelRlCallback):
            handler.callbacks = [callback for callback in handler.callbacks if not isinstance(callback, OtelRlCallback)]

    patches.observe(module, "Trainer.__init__", (), init, what="Trainer.__init__")
    patches.observe(module, "CallbackHandler.add_callback", ("callback",), add, what="add_callback", first=True)


def _callback_of(trainer: Any) -> OtelRlCallback | None:
    callbacks = trainer.callback_handler.callbacks
    return next((callback for callback in callbacks if isinstance(callback, OtelRlCallback)), None)


def _add_callback(trainer: Any) -> OtelRlCallback:
    trainer.add_callback(callback := OtelRlCallback())
    time_methods(trainer)
    return callback


def patch_profiling(module: Any, patches: Patches) -> None:
    """Record the functions that TRL profiles as phases, and reward functions as parts of the phase around them."""

    def name(profile: Any) -> str:
        short = str(profile.name).partition(".")[2] or str(profile.name)
        around = trace.get_current_span()
        return f"{_REWARDS}/{short}" if isinstance(around, Phase) and around._phase == _REWARDS else short

    Timers("", lambda _: None).hook_timer(patches, module, "ProfilingContext", name)


def time_methods(trainer: Any) -> None:
    """Record methods of one trainer as phases, whatever class overrides them, and what it generates."""
    for name, phase in _METHODS.items():
        wrap_method(trainer, name, partial(_time_method, phase))
    wrap_method(getattr(trainer, "accelerator", None), "backward", partial(_time_call, "backward"))
    wrap_method(trainer, _GENERATE, _record_generations)


def _time_method(
    phase: str, method: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    callback = None
    with harmless(phase):
        callback = _callback_of(trainer)
        if callback is not None:
            callback.recording(trainer.args)
            if phase == "get_batch_samples":  # they are the next step's
                callback.begin_step(trainer.state)
    try:
        return _time_call(phase, method, trainer, args, kwargs)
    except BaseException as error:
        if callback is not None:
            callback.fail(error)
        raise


def _time_call(phase: str, method: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with nullcontext() if (run := otel_rl.current()) is None else run.phase(phase):
        return method(*args, **kwargs)


def _record_generations(method: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    batch = method(*args, **kwargs)
    with harmless(_GENERATE):
        if (callback := _callback_of(trainer)) is not None:
            callback.record_rollouts(trainer, batch)
    return batch


def _tokens_seen(state: Any) -> int:
    return int(getattr(state, "num_input_tokens_seen", 0) or 0)
