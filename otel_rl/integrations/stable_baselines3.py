"""Stable-Baselines3: its logger's writer, and a callback.

    model = PPO("MlpPolicy", "CartPole-v1")
    record(model)                                        # or: record(model, project="cartpole")
    model.learn(100_000, callback=OtelRlCallback())

What the model dumps is recorded under its own names at its own steps, which are timesteps. Of on-policy algorithms the
callback makes steps, from the beginning of one rollout to that of the next, with the phases `rollout` and `train`; the
number of a step is the timestep that its rollout ends with, which is what SB3 dumps it at. As SB3 dumps before it
trains, `train/*` in a row are of the update before.
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


class OtelRlWriter(KVWriter):  # type: ignore[misc] # mypy is told of no types of SB3
    """A writer for SB3's logger.

    Args:
        options: What `otel_rl.init` takes; without effect where there is a run already.
    """

    def __init__(self, **options: Any) -> None:
        self._recording = Recording(**options)

    def write(self, key_values: Mapping[str, Any], key_excluded: Mapping[str, tuple[str, ...]], step: int = 0) -> None:
        """Record what is a number."""
        numbers = {name: value for name, value in key_values.items() if hasattr(value, "__float__")}
        self._recording.run.log(numbers, step=step)

    def close(self) -> None:
        """End the run, if it was begun here."""
        self._recording.finish()


class OtelRlCallback(BaseCallback):  # type: ignore[misc] # mypy is told of no types of SB3
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
    """Let a model's logger write into a run too, and return the writer, whose `close` ends a run of its own.

    Args:
        model: An algorithm of SB3; one that has no logger yet gets one that prints as SB3's own does.
        options: What `otel_rl.init` takes.
    """
    writer = OtelRlWriter(**options)
    logger: Logger = model.logger if hasattr(model, "_logger") else configure(None, ["stdout"] if model.verbose else [])
    logger.output_formats.append(writer)
    model.set_logger(logger)
    return writer
