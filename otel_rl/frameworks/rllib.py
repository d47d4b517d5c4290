"""RLlib: the results of its algorithms, and their timers.

    config = PPOConfig().environment("CartPole-v1").callbacks(OtelRlCallback)

A step lasts from the start of one iteration to the start of the next one, so it includes what the script does between
them.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from wrapt import ObjectProxy

from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording, unless_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from otel_rl.frameworks.patches import Patches

    _Proxy = ObjectProxy[Any]
else:
    _Proxy = ObjectProxy

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


class _OldTimers(defaultdict[str, Any]):
    """The timers of the old API stack, each with a phase around what it measures.

    Args:
        timers: Those of an algorithm.
        timed: Returns a context manager that measures with a timer of this name, in a phase.
    """

    def __init__(self, timers: defaultdict[str, Any], timed: Callable[[str, Any], AbstractContextManager[Any]]) -> None:
        super().__init__(timers.default_factory, timers)
        self._timed = timed

    def __getitem__(self, name: str) -> Any:
        timer = super().__getitem__(name)
        return timer if name in _WHOLES else _TimerProxy(timer, lambda: self._timed(name, timer))


class _TimerProxy(_Proxy):
    def __init__(self, timer: Any, timed: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__(timer)
        # wrapt keeps names that begin with `_self_` on the proxy; it would set any other one on RLlib's timer.
        self._self_timed = timed

    def __enter__(self) -> Any:
        self._self_open = self._self_timed()
        return self._self_open.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._self_open.__exit__(*error)


class _Algorithm:
    """The recording of an algorithm, whose methods it replaces.

    Args:
        algorithm: An algorithm of RLlib.
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, algorithm: Any, options: dict[str, Any]) -> None:
        self._algorithm = algorithm
        self.recording = Recording(algorithm, **(unless_set(dialect="rllib") | options))
        config = algorithm.config.to_dict()
        self.recording.run.params({name: value for name, value in config.items() if isinstance(value, _SIMPLE)})
        self._step, self._log_result = algorithm.step, algorithm.log_result
        self._cleanup, self._log_time = algorithm.cleanup, algorithm.metrics.log_time
        algorithm.step, algorithm.log_result = self.step, self.log_result
        algorithm.cleanup, algorithm.metrics.log_time = self.cleanup, self.log_time
        if (timers := getattr(algorithm, "_timers", None)) is not None:  # the old API stack is deprecated
            algorithm._timers = _OldTimers(timers, self.timed)

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
            self.recording.log(values, result["training_iteration"])

    def log_time(self, key: str | tuple[str, ...], **options: Any) -> Any:
        """Return RLlib's timer, with a phase around what it measures."""
        timer = self._log_time(key, **options)
        name = key if isinstance(key, str) else key[-1]
        return timer if name in _WHOLES else self.timed(name, timer)

    @contextmanager
    def timed(self, name: str, timer: Any) -> Iterator[Any]:
        """Measure the body with a timer, in a phase."""
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
