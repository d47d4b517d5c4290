"""Stable-Baselines3: a callback, and its logger's writer.

    model.learn(100_000, callback=OtelRlCallback())      # or: OtelRlCallback(project="cartpole")

The number of a step of an on-policy algorithm is the timestep at which its rollout ends, as in SB3's dumps; that of an
off-policy algorithm is the timestep of the dump with which it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import configure_logger

from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording, unless_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.frameworks.patches import Patches

_SIMPLE = (str, int, float, bool)
_writers: WeakKeyDictionary[Any, OtelRlWriter] = WeakKeyDictionary()
"""The writer of each model, whose logger `learn` replaces."""


class OtelRlWriter(KVWriter):  # type: ignore[misc] # mypy does not read SB3's types
    """A writer for SB3's logger.

    Args:
        model: The model whose values it writes.
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self._model = model
        self._options = options
        self.recording = self._begin()

    def begin_training(self, *, anew: bool) -> None:
        """Begin a training: another one if the model trained before and counts its timesteps from 0 again."""
        if not self.recording.is_open or (anew and self.recording.number is not None):
            self.recording = self._begin(None if anew else self.recording)
        self.recording.run.params({k: v for k, v in vars(self._model).items() if isinstance(v, _SIMPLE)})

    def write(self, key_values: Mapping[str, Any], key_excluded: Mapping[str, tuple[str, ...]], step: int = 0) -> None:
        """Record the numbers. Then the next step of an off-policy algorithm begins, with this number."""
        with harmless("write"):
            charted = {name: value for name, value in key_values.items() if hasattr(value, "__float__")}
            self.recording.log(charted, step)
            if self.recording.has_step and not isinstance(self._model, OnPolicyAlgorithm):
                self.recording.begin_step(step)
                self.recording.begin_phase("rollout")

    def close(self) -> None:
        """End the run, if this object began it."""
        self.recording.finish()

    def _begin(self, after: Recording | None = None) -> Recording:
        return Recording(self._model, after, **(unless_set(dialect="stable_baselines3") | self._options))


class OtelRlCallback(BaseCallback):  # type: ignore[misc] # mypy does not read SB3's types
    """A callback that records a training: values, steps and phases.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._writer: OtelRlWriter | None = None

    def _on_training_start(self) -> None:
        self._writer = record(self.model, **self._options)
        self._writer.begin_training(anew=self.num_timesteps == 0)

    def _on_rollout_start(self) -> None:
        if self._writer is None:
            return
        recording = self._writer.recording
        if isinstance(self.model, OnPolicyAlgorithm):
            recording.begin_step(self.num_timesteps + self.model.n_steps * self.model.n_envs)
        elif not recording.has_step:
            recording.begin_step(self.num_timesteps)
        recording.begin_phase("rollout")

    def _on_rollout_end(self) -> None:
        if self._writer is not None and self.num_timesteps > getattr(self.model, "learning_starts", 0):
            self._writer.recording.begin_phase("train")

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._writer is not None:
            self._writer.recording.rest()


def record(model: Any, **options: Any) -> OtelRlWriter:
    """Add a writer to a model's logger and return it. Its `close` ends the run if the writer began it.

    Args:
        model: An algorithm of SB3. If it has no logger yet, it gets the one that `learn` would give it.
        options: Keywords of `otel_rl.init`.
    """
    if not hasattr(model, "_logger"):
        model.set_logger(configure_logger(model.verbose, model.tensorboard_log, type(model).__name__))
    if (writer := _writers.get(model)) is None:
        _writers[model] = writer = OtelRlWriter(model, **options)
    if writer not in model.logger.output_formats:
        model.logger.output_formats.append(writer)
    return writer


def patch(module: Any, patches: Patches) -> None:
    """Add a callback to each training that has none."""

    def init(function: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        callback = function(*args, **kwargs)
        with harmless("callback"):
            if not _records(callback):
                both = CallbackList([callback, OtelRlCallback()])
                # Not `both.init_callback`: SB3 has initialized the other callback already.
                both.callbacks[1].init_callback(model)
                both.model = model
                return both
        return callback

    patches.wrap(module, "BaseAlgorithm._init_callback", init)


def _records(callback: Any) -> bool:
    return isinstance(callback, OtelRlCallback) or any(map(_records, getattr(callback, "callbacks", ())))
