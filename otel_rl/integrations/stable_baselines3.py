"""Stable-Baselines3: its logger's writer, and a callback.

    model = PPO("MlpPolicy", "CartPole-v1")
    record(model)                                        # or: record(model, project="cartpole")
    model.learn(100_000, callback=OtelRlCallback())

The writer records the values that the model dumps, under their names at its own steps, which are timesteps. The
callback makes steps of on-policy algorithms, each from the start of one rollout to the start of the next, with the
phases `rollout` and `train`. The number of a step is the timestep at which its rollout ends, as in SB3's dumps. SB3
dumps before it trains, so `train/*` in a row belongs to the previous update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger, configure

import otel_rl
from otel_rl.integrations.patches import harmless
from otel_rl.integrations.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.trainer.no_span import NoSpan
    from otel_rl.trainer.phase import Phase
    from otel_rl.trainer.step import StepSpan


class OtelRlWriter(KVWriter):  # type: ignore[misc] # mypy does not read SB3's types
    """A writer for SB3's logger.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, **options: Any) -> None:
        self._recording = Recording(**options)

    def write(self, key_values: Mapping[str, Any], key_excluded: Mapping[str, tuple[str, ...]], step: int = 0) -> None:
        """Record the numbers."""
        numbers = {name: value for name, value in key_values.items() if hasattr(value, "__float__")}
        self._recording.run.log(numbers, step=step)

    def close(self) -> None:
        """End the run, if this object began it."""
        self._recording.finish()


class OtelRlCallback(BaseCallback):  # type: ignore[misc] # mypy does not read SB3's types
    """Makes steps and phases of an on-policy algorithm."""

    def __init__(self) -> None:
        super().__init__()
        self._step: StepSpan | NoSpan | None = None
        self._phase: Phase | NoSpan | None = None

    def _on_training_start(self) -> None:
        run = otel_rl.current()
        if run is not None:
            simple = (str, int, float, bool)
            run.params({name: value for name, value in vars(self.model).items() if isinstance(value, simple)})

    def _on_rollout_start(self) -> None:
        with harmless("on_rollout_start"):
            self._end()
            run = otel_rl.current()
            if run is not None and hasattr(self.model, "n_steps"):
                self._step = run.step(self.num_timesteps + self.model.n_steps * self.model.n_envs)
                self._step.__enter__()
                self._begin("rollout")

    def _on_rollout_end(self) -> None:
        with harmless("on_rollout_end"):
            if self._step is not None:
                self._begin("train")

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        with harmless("on_training_end"):
            self._end()

    def _begin(self, name: str) -> None:
        self._end_phase()
        run = otel_rl.current()
        if run is not None:
            self._phase = run.phase(name)
            self._phase.__enter__()

    def _end_phase(self) -> None:
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.__exit__(None, None, None)

    def _end(self) -> None:
        self._end_phase()
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)


def record(model: Any, **options: Any) -> OtelRlWriter:
    """Add a writer to a model's logger and return it. Its `close` ends the run if the writer began it.

    Args:
        model: An algorithm of SB3. If it has no logger yet, it gets one that prints as SB3's own does.
        options: Keywords of `otel_rl.init`.
    """
    writer = OtelRlWriter(**options)
    logger: Logger = model.logger if hasattr(model, "_logger") else configure(None, ["stdout"] if model.verbose else [])
    logger.output_formats.append(writer)
    model.set_logger(logger)
    return writer
