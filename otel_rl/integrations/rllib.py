"""RLlib: the results of its algorithms, and their timers.

    config = PPOConfig().environment("CartPole-v1").callbacks(OtelRlCallback)

A step lasts from the start of one iteration to the start of the next one, so it includes what the script does between
them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from otel_rl.errors.sinks import log_of
from otel_rl.integrations.patches import harmless
from otel_rl.integrations.recording import Recording, flat, numbers, unless_set

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_rl.integrations.patches import Patches

logger = log_of("otel_rl")
_OLD_STACK = (
    "RLlib's old API stack times its work in another way: rows are recorded, phases are not; use the new API stack, or "
    "`with otel_rl.current().phase(name)`"
)
_MARK = "_otel_rl_recording"
_WHOLES = ("training_iteration", "training_step")
"""Timers around the others, which are not recorded as phases."""
_NO_METRICS = ("config", "done", "pid", "timestamp")
_SIMPLE = (str, int, float, bool)


class OtelRlCallback(RLlibCallback):
    """A callback that records the algorithm in which it is."""

    def on_algorithm_init(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Begin the recording."""
        with harmless("on_algorithm_init"):
            record(algorithm)


class _Algorithm:
    """The recording of an algorithm, whose methods it replaces.

    Args:
        algorithm: An algorithm of RLlib.
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, algorithm: Any, options: dict[str, Any]) -> None:
        self._algorithm = algorithm
        self.recording = Recording(algorithm, **(unless_set(dialect="rllib") | options))
        if not algorithm.config.enable_env_runner_and_connector_v2:
            logger.warning(_OLD_STACK)
        config = algorithm.config.to_dict()
        self.recording.run.params({name: value for name, value in config.items() if isinstance(value, _SIMPLE)})
        self._step, self._log_result = algorithm.step, algorithm.log_result
        self._cleanup, self._log_time = algorithm.cleanup, algorithm.metrics.log_time
        algorithm.step, algorithm.log_result = self.step, self.log_result
        algorithm.cleanup, algorithm.metrics.log_time = self.cleanup, self.log_time

    def step(self) -> Any:
        """Train for an iteration, in a step."""
        with harmless("step"):
            self.recording.begin_step(self._algorithm.iteration + 1)
        return self._step()

    def log_result(self, result: Mapping[str, Any]) -> None:
        """Log a result, which callbacks may change, and record it."""
        self._log_result(result)
        with harmless("log_result"):
            values = {name: value for name, value in result.items() if name not in _NO_METRICS}
            self.recording.run.log(numbers(dict(flat(values))), step=result["training_iteration"])

    def log_time(self, key: str | tuple[str, ...], **options: Any) -> Any:
        """Return RLlib's timer, with a phase around what it measures."""
        timer = self._log_time(key, **options)
        name = key if isinstance(key, str) else key[-1]
        return timer if name in _WHOLES else self._timed(name, timer)

    @contextmanager
    def _timed(self, name: str, timer: Any) -> Iterator[Any]:
        with self.recording.run.phase(name), timer as value:
            yield value

    def cleanup(self) -> None:
        """Stop the algorithm, and end the run."""
        self._cleanup()
        with harmless("cleanup"):
            self.recording.finish()


def record(algorithm: Any, **options: Any) -> Recording:
    """Record an algorithm: each `train()` is a step. A second call returns the same recording.

    Args:
        algorithm: An algorithm of RLlib, as `config.build_algo()` returns it.
        options: Keywords of `otel_rl.init`; without effect if a run exists.

    Raises:
        SettingsError: There is no run yet, and a setting is wrong.
    """
    if getattr(algorithm, _MARK, None) is None:
        setattr(algorithm, _MARK, _Algorithm(algorithm, options))
    recording: Recording = getattr(algorithm, _MARK).recording
    return recording


def patch(module: Any, patches: Patches) -> None:
    """Record each algorithm when it has been set up."""
    patches.observe(module, "Algorithm.setup", (), lambda algorithm, _: record(algorithm), what="Algorithm.setup")
