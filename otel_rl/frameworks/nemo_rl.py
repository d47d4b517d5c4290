"""NeMo-RL: a backend in its own `Logger`, its timers as steps and phases, and a logger and a timer of its call shape.

    from otel_rl.frameworks.nemo_rl import Logger, Timer      # in place of nemo_rl.utils

    logger = Logger({"log_dir": "logs", "tensorboard_enabled": True})
    logger.log_metrics({"loss": 0.123}, step=10, prefix="train")

docs/how-to/migrate.md says what is different. Timers of single rollouts (`timing/…`) overlap, so they are
not phases.
"""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from otel_rl.frameworks.charted import element, flat
from otel_rl.frameworks.instrument import instrument
from otel_rl.frameworks.nemo_rl_rollouts import record_file
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording, unless_set
from otel_rl.frameworks.timers import Timers
from otel_rl.recorder.convert.tables import device_of
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.modes import make_directory, open_file
from otel_rl.recorder.trainer.current import recorder_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from otel_rl.frameworks.patches import Patches

logger = log_of("otel_rl")

_BACKENDS: dict[str, tuple[str, ...]] = {
    "wandb": ("project", "name", "entity", "group", "tags", "notes", "mode"),
    "tensorboard": ("log_dir",),
    "mlflow": ("experiment_name", "run_name", "tracking_uri", "artifact_location"),
    "swanlab": ("project", "workspace", "experiment_name", "description", "mode"),
}
"""The backends, each with the options that otel-rl's exporter has too."""
_WORKERS = (
    "NeMo-RL: the driver's values, steps and phases are recorded. Phases and memory of a worker are recorded only if "
    "its class has @otel_rl.frameworks.ray.traced_actor(role=...)"
)
_ENVIRONMENT = (
    "NeMo-RL: %s cannot be recorded, because its environment lacks otel-rl; install it: uv pip install -p %s otel-rl"
)


class Backend:
    """A backend of NeMo-RL's own `Logger`, whose section names the run; `OTEL_RL_*` variables configure it."""

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        named = cfg.get("wandb") or {}
        self._recording = Recording(
            dialect="nemo_rl", **unless_set(project=named.get("project"), name=named.get("name"))
        )

    def log_metrics(
        self,
        metrics: Mapping[str, Any],
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,
        step_finished: bool = False,
    ) -> None:
        """Record numbers and lists of observations as `prefix/name`; another axis, `step_metric`, is among them."""
        with harmless("log_metrics"):
            joined = "" if not prefix else f"{prefix}/"
            named = {
                name if name == step_metric else f"{joined}{name}": _flat(element(value))
                for name, value in flat(metrics)
            }
            on_axis = step_metric is not None and step_metric in metrics
            before = on_axis and steps_of(self._recording.run).last is None  # polled before the first step
            self._recording.log(named, 0 if before else None if on_axis else step)

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Record hyper-parameters, flattened with dots, list items by their index."""
        self._recording.run.params(params)

    def log_histogram(self, histogram: Sequence[Any], step: int, name: str) -> None:
        """Record observations of any shape, as their statistics."""
        with harmless("log_histogram"):
            self._recording.run.log({name: _flat(histogram)}, step=step)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a method that counts its calls, in place of those that log figures."""
        if not name.startswith("log_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return lambda *_, **__: recorder_of(self._recording.run).refuse("plot", f"{name}(): figures are not recorded")

    def finish(self) -> None:
        """End the run, if this logger began it, and wait until it is delivered."""
        self._recording.finish()


class Logger(Backend):
    """Records into every backend that NeMo-RL's `logger` section enables; intervals are in seconds.

    If it enables none, the exporters are those of otel-rl's settings. NeMo-RL's own timers are recorded too.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        instrument("nemo_rl")
        self.base_log_dir = str(cfg.get("log_dir", "logs"))
        sections: dict[str, Mapping[str, Any]] = {name: cfg.get(name) or {} for name in _BACKENDS}
        named = sections["wandb"] or {}
        monitoring: Mapping[str, float] = cfg.get("gpu_monitoring") or {}
        self._recording = Recording(
            dir=self.base_log_dir,
            exporters=[
                {name: self._options(name, sections[name])} for name in _BACKENDS if cfg.get(f"{name}_enabled", False)
            ]
            or None,
            dialect="nemo_rl",
            hardware={
                "enabled": bool(cfg.get("monitor_gpus")),
                "interval": monitoring.get("collection_interval"),
                "flush_interval": monitoring.get("flush_interval"),
            },
            **unless_set(
                project=named.get("project") or sections["mlflow"].get("experiment_name"),
                name=named.get("name") or sections["mlflow"].get("run_name"),
            ),
        )

    def log_batched_dict_as_jsonl(self, to_log: Mapping[str, Any], filename: str) -> None:
        """Write an object for each sample to a file in the log directory, with its `idx`; the file is replaced."""
        with harmless("log_batched_dict_as_jsonl"):
            record_file(to_log, filename)
            samples = len(next(iter(to_log.values()), ()))
            with self._open(filename, "w") as file:
                for n in range(samples):
                    parts = {key: column[n : n + 1] for key, column in to_log.items()}
                    lists = {key: part.tolist() if hasattr(part, "tolist") else part for key, part in parts.items()}
                    file.write(json.dumps({**lists, "idx": n}, default=str) + "\n")

    def log_string_list_as_jsonl(self, to_log: Sequence[str], filename: str) -> None:
        """Append texts, such as JSON, to a file in the log directory, one line each."""
        with harmless("log_string_list_as_jsonl"), self._open(filename, "a") as file:
            file.writelines(f"{line}\n" for line in to_log)

    def _options(self, name: str, section: Mapping[str, Any]) -> dict[str, Any]:
        place = str(Path(self.base_log_dir, section.get("log_dir", "tensorboard")).absolute())
        given = {**section, "log_dir": place} if name == "tensorboard" else section
        return {key: given[key] for key in _BACKENDS[name] if given.get(key) is not None}

    def _open(self, filename: str, mode: str) -> IO[str]:
        path = Path(self.base_log_dir, filename)
        make_directory(path.parent)
        return cast("IO[str]", open(path, mode, opener=open_file))


def _flat(value: Any) -> Any:
    """Return nested lists and arrays of any shape as one list, and other values as they are."""
    # A value on a GPU stays there: `tolist` would wait for the device in the training thread.
    if getattr(value, "ndim", 0) and not device_of(value):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        return value
    return [number for part in map(_flat, value) for number in (part if isinstance(part, list) else [part])]


def get_next_experiment_dir(base_log_dir: str) -> str:
    """Create `exp_001`, `exp_002`, … below a directory, one more than the highest there is; return its path."""
    matches = (re.match(r"exp_(\d+)", path.name) for path in Path(base_log_dir).glob("exp_*"))
    path = Path(base_log_dir, f"exp_{max((int(match[1]) for match in matches if match), default=0) + 1:03d}")
    make_directory(path)
    return str(path)


def patch(module: Any, patches: Patches) -> None:
    """Add a backend to every `Logger`, and record the trajectories that it writes to files."""
    patches.observe(
        module, "Logger.__init__", ("cfg",), lambda logger, given: logger.loggers.append(Backend(given["cfg"]))
    )
    if hasattr(module.Logger, "log_batched_dict_as_jsonl"):
        names = ("to_log", "filename")
        patches.observe(module, "Logger.log_batched_dict_as_jsonl", names, lambda _, given: record_file(**given))


def patch_timer(module: Any, patches: Patches) -> None:
    """Record the sections of `Timer` as steps and phases."""
    patches.observe(module, "Timer.start", ("label",), lambda timer, given: _begin(timer, given["label"]))
    patches.observe(module, "Timer.stop", ("label",), lambda timer, given: _end(timer, given["label"]))


def warn_of_workers(module: Any, patches: Patches) -> None:
    """Log how workers are recorded, in the process that creates them."""
    logger.warning(_WORKERS)


def patch_environments(module: Any, patches: Patches) -> None:
    """Log one line for each kind of worker whose environment lacks otel-rl."""
    seen = set[str]()

    def create(function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        python = function(*args, **kwargs)
        with harmless("create_local_venv_on_each_node"):
            place = Path(python).parents[1]
            lacks = not any(place.glob("lib/python*/site-packages/otel_rl*"))
            if lacks and place.is_dir() and python not in seen:
                seen.add(python)
                logger.warning(_ENVIRONMENT, place.name, python)
        return python

    patches.wrap(module, "create_local_venv_on_each_node", create)


def _number_of_step(variables: Mapping[str, Any]) -> int | None:
    """Return the number under which a trainer, or the single controller with its `_train_steps`, logs the step."""
    done = variables.get("total_steps", variables.get("step", getattr(variables.get("self"), "_train_steps", None)))
    return done + 1 if isinstance(done, int) else None


_TIMERS = Timers("total_step_time", _number_of_step, module="nemo_rl.utils.timer")
_open: dict[tuple[int, str], tuple[Any, int]] = {}  # by timer and label, with the exception being handled then


def _begin(timer: object, label: str) -> None:
    _end(timer, label)  # after a `reset`
    if not label.startswith("timing/"):
        _open[id(timer), label] = _TIMERS.begin(label), id(sys.exc_info()[1])


def _end(timer: object, label: str) -> None:
    if (begun := _open.pop((id(timer), label), None)) is not None:
        error = sys.exc_info()[1]
        _TIMERS.end(label, begun[0], None if id(error) == begun[1] else error)


_REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    **{name: getattr(np, name) for name in ("mean", "median", "min", "max", "std", "sum")},
    "count": len,
}


class Timer:
    """Measures stretches of time by label, from any thread; they are phases of the run too.

    Raises:
        ValueError: A label is started twice, or stopped without a start, or the operation is unknown.
        KeyError: There are no measurements of the label.
    """

    def __init__(self, context: Mapping[str, object] | None = None) -> None:
        self._timers: dict[str, list[float]] = {}
        self._start_times: dict[str, float] = {}
        self._markers: dict[str, list[tuple[float, dict[str, Any] | None]]] = {}

    def start(self, label: str, should_log: bool = True) -> None:
        """Begin to measure."""
        now = time.perf_counter()
        # `setdefault` is atomic: of two threads that start one label, one gets the error.
        if self._start_times.setdefault(label, now) is not now:
            raise ValueError(f"Timer '{label}' is already running")
        _begin(self, label)

    def stop(self, label: str, should_log: bool = True) -> float:
        """End the measurement; return its seconds."""
        began = self._start_times.pop(label, None)
        if began is None:
            raise ValueError(f"Timer '{label}' is not running. Running times: {self._start_times.keys()}")
        self.record(label, seconds := time.perf_counter() - began)
        _end(self, label)
        return seconds

    @contextmanager
    def time(self, label: str, should_log: bool = True) -> Iterator[None]:
        """Measure what is done inside."""
        self.start(label)
        try:
            yield
        finally:
            self.stop(label)

    def record(self, label: str, elapsed: float) -> None:
        """Add seconds that were measured elsewhere."""
        self._timers.setdefault(label, []).append(elapsed)

    def mark(self, label: str, metadata: dict[str, Any] | None = None) -> float:
        """Remember a moment; return it in seconds since 1970."""
        self._markers.setdefault(label, []).append((now := time.time(), metadata))
        return now

    def get_markers(self, label: str | None = None) -> dict[str, list[tuple[float, dict[str, Any] | None]]]:
        """Return the moments of a label, or of all labels."""
        markers = dict(self._markers) if label is None else {label: self._markers.get(label, [])}
        return {name: list(moments) for name, moments in markers.items()}

    def get_elapsed(self, label: str) -> list[float]:
        """Return all measurements of a label, in seconds."""
        if label not in self._timers:
            raise KeyError(f"No timings recorded for '{label}'")
        return self._timers[label]

    def get_latest_elapsed(self, label: str) -> float:
        """Return the last measurement of a label, in seconds."""
        return self.get_elapsed(label)[-1]

    def reduce(self, label: str, operation: str = "mean") -> float:
        """Return one statistic of a label: mean, median, min, max, std (of the population), sum or count."""
        if operation not in _REDUCTIONS:
            raise ValueError(f"Invalid operation '{operation}'. Valid options are: {', '.join(_REDUCTIONS)}")
        return _REDUCTIONS[operation](self.get_elapsed(label))

    def get_timing_metrics(self, reduction_op: str | Mapping[str, str] = "mean") -> dict[str, float | list[float]]:
        """Return one statistic of each label, the same for all or by label; all measurements of labels without one."""
        timers = dict(self._timers)
        chosen = dict.fromkeys(timers, reduction_op) if isinstance(reduction_op, str) else reduction_op
        labels = [label for label in dict.fromkeys([*chosen, *timers]) if label in timers]
        known = {label: _REDUCTIONS.get(chosen.get(label, "")) for label in labels}
        return {label: timers[label] if reduce is None else reduce(timers[label]) for label, reduce in known.items()}

    def reset(self, label: str | None = None) -> None:
        """Forget the measurements and moments of a label, or all."""
        for kept in (self._timers, self._start_times, self._markers):
            kept.pop(label, None) if label else kept.clear()


ThreadSafeTimer = Timer
"""Every `Timer` is thread-safe."""
