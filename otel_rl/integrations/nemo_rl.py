"""Coming from NeMo-RL.

Replace `from nemo_rl.utils.logger import Logger` and `from nemo_rl.utils.timer import Timer` by

    from otel_rl.integrations.nemo_rl import Logger, Timer

    logger = Logger({
        "log_dir": "logs", "tensorboard_enabled": True, "wandb_enabled": False,
        "tensorboard": {"log_dir": "tb"},
    })
    logger.log_hyperparams({"policy": {"lr": 1e-6}})
    logger.log_metrics({"loss": 0.123}, step=10, prefix="train")
    logger.finish()

Or keep NeMo-RL's own logger: `otel-rl run -- python examples/run_grpo.py …` adds a backend to every `Logger`. Sections
that its `Timer` times in the driver are steps (`total_step_time`, until the next one begins) and phases.

The same: the configuration, `prefix/name`, hyper-parameters flattened with dots, both call shapes of `log_metrics`.
Different: a backend that fails does not affect the others. A list becomes observations (`name/mean`, `name/max` …).
Metrics with their own axis (`step_metric`) belong to the last training step. Figures are counted and not recorded. GPUs
(`monitor_gpus`, `gpu_monitoring`) are measured by the agent of each node, not through Ray's endpoints: a node that is
gone delays no other one, and keeps its number.
"""

from __future__ import annotations

import json
import logging
import re
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import otel_rl
from otel_rl.convert.tables import to_list
from otel_rl.integrations.recording import Recording, flat
from otel_rl.integrations.timers import Timers
from otel_rl.stats import statistics
from otel_rl.trainer.current import recorder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from otel_rl.integrations.patches import Patches

logger = logging.getLogger(__name__)

_BACKENDS: dict[str, tuple[str, ...]] = {
    "wandb": ("project", "name", "entity", "group", "tags", "notes", "mode"),
    "tensorboard": ("log_dir",),
    "mlflow": ("experiment_name", "run_name", "tracking_uri", "artifact_location"),
    "swanlab": ("project", "workspace", "experiment_name", "description", "mode"),
}
"""The backends, each with the options that otel-rl's exporter has too."""


class LoggerInterface(Protocol):
    """A backend of NeMo-RL."""

    def log_metrics(
        self,
        metrics: dict[str, Any],
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,
        step_finished: bool = False,
    ) -> None:
        """Log the metrics of a step."""

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Log hyper-parameters."""


class Logger:
    """Records into every backend that the configuration enables, possibly none.

    Args:
        cfg: NeMo-RL's `logger` section: `log_dir`, `wandb_enabled`, `tensorboard_enabled`, `mlflow_enabled`,
            `swanlab_enabled`, and a section for each of these; `monitor_gpus`, and `gpu_monitoring` with its
            `collection_interval` and `flush_interval` in seconds.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self.base_log_dir = str(cfg.get("log_dir", "logs"))
        sections: dict[str, Mapping[str, Any]] = {name: cfg.get(name) or {} for name in _BACKENDS}
        named = sections["wandb"] or {}
        monitoring: Mapping[str, float] = cfg.get("gpu_monitoring") or {}
        self._recording = Recording(
            dir=self.base_log_dir,
            project=named.get("project") or sections["mlflow"].get("experiment_name"),
            name=named.get("name") or sections["mlflow"].get("run_name"),
            exporters=[
                {name: self._options(name, sections[name])} for name in _BACKENDS if cfg.get(f"{name}_enabled", False)
            ],
            dialect="nemo_rl",
            hardware={
                "enabled": cfg.get("monitor_gpus"),
                "interval": monitoring.get("collection_interval"),
                "flush_interval": monitoring.get("flush_interval"),
            },
        )

    def log_metrics(
        self,
        metrics: Mapping[str, Any],
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,
        step_finished: bool = False,
    ) -> None:
        """Record the metrics of a step as `prefix/name`; nested ones are joined with `/`.

        Args:
            metrics: Numbers, and lists or 1-D arrays of observations, by name.
            step: The training step.
            prefix: The text before each name.
            step_metric: Another axis than the training step, such as `ray/ray_step`; it is among the metrics.
            step_finished: Accepted for compatibility; a step ends when the next one begins.
        """
        named = {f"{prefix}/{name}" if prefix else name: value for name, value in flat(metrics)}
        self._recording.run.log(named, step=None if step_metric else step)

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Record hyper-parameters, flattened with dots, list items by their index."""
        self._recording.run.params(params)

    def log_histogram(self, histogram: Sequence[float], step: int, name: str) -> None:
        """Record observations, as their statistics."""
        self._recording.run.log({name: to_list(name, histogram)}, step=step)

    def log_plot(self, figure: object, step: int, name: str) -> None:
        """Count a figure. Figures are not recorded."""
        recorder_of(self._recording.run).refuse("plot", f"{name}: figures are not recorded")

    def log_batched_dict_as_jsonl(self, to_log: Mapping[str, Any], filename: str) -> None:
        """Write columns to a file in the log directory, one object for each sample with its `idx`; it is replaced."""
        columns = {name: to_list(name, values) for name, values in to_log.items()}
        lengths = set(map(len, columns.values()))
        rows = [
            {"idx": n, **{name: values[n] for name, values in columns.items()}} for n in range(min(lengths, default=0))
        ]
        self._file(filename).write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))

    def log_string_list_as_jsonl(self, to_log: Sequence[str], filename: str) -> None:
        """Append texts to a file in the log directory, one line each."""
        with self._file(filename).open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in to_log)

    def finish(self) -> None:
        """End the run, if this logger began it, and wait until it is delivered."""
        self._recording.finish()

    def _options(self, name: str, section: Mapping[str, Any]) -> dict[str, Any]:
        options = {key: section[key] for key in _BACKENDS[name] if section.get(key) is not None}
        if name == "tensorboard":
            options["log_dir"] = str(Path(self.base_log_dir, section.get("log_dir", "tensorboard")).absolute())
        return options

    def _file(self, filename: str) -> Path:
        path = Path(self.base_log_dir, filename)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class Backend(Logger):
    """An additional backend of NeMo-RL's own `Logger`. `OTEL_RL_*` variables configure the run.

    Args:
        cfg: NeMo-RL's `logger` section, for the names of project and run.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self.base_log_dir = str(cfg.get("log_dir", "logs"))
        named = cfg.get("wandb") or {}
        self._recording = Recording(project=named.get("project"), name=named.get("name"), dialect="nemo_rl")


def patch(module: Any, patches: Patches) -> None:
    """Add a backend to every `Logger`."""

    def add(logger_: Any, given: dict[str, Any]) -> None:
        logger_.loggers.append(Backend(given["cfg"]))

    patches.observe(module, "Logger.__init__", ("cfg",), add, what="Logger")


def patch_timer(module: Any, patches: Patches) -> None:
    """Record the sections of `Timer.time` as steps and phases."""

    def timed(function: Callable[..., Any], timer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _TIMERS.around(str(kwargs.get("label", args[0] if args else "")), function(*args, **kwargs))

    patches.wrap(module, "Timer.time", timed)


def _number_of_step(variables: Mapping[str, Any]) -> int | None:
    """Return the number under which `grpo_train` (`total_steps`) or `async_grpo_train` (`step`) logs the step."""
    done = variables.get("total_steps", variables.get("step"))
    return done + 1 if isinstance(done, int) else None


_TIMERS = Timers("total_step_time", _number_of_step)


def get_next_experiment_dir(base_log_dir: str) -> str:
    """Return `exp_001`, `exp_002`, … below a directory: one more than the highest there is."""
    found = (re.fullmatch(r"exp_(\d+)", path.name) for path in Path(base_log_dir).glob("exp_*"))
    highest = max((int(match[1]) for match in found if match), default=0)
    return str(Path(base_log_dir, f"exp_{highest + 1:03d}"))


class Timer:
    """Measures stretches of time by label; those in `time` are phases of the run too.

    Raises:
        ValueError: A label is started twice, or stopped without a start.
    """

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._seconds: dict[str, list[float]] = {}

    def start(self, label: str) -> None:
        """Begin to measure."""
        if label in self._started:
            raise ValueError(f"timer {label!r} is already running")
        self._started[label] = time.perf_counter()

    def stop(self, label: str) -> float:
        """End the measurement; return its seconds."""
        if label not in self._started:
            raise ValueError(f"timer {label!r} was not started")
        seconds = time.perf_counter() - self._started.pop(label)
        self.record(label, seconds)
        return seconds

    @contextmanager
    def time(self, label: str) -> Iterator[None]:
        """Measure what is done inside."""
        run = otel_rl.current()
        self.start(label)
        try:
            if run is None:
                yield
            else:
                with run.phase(label):
                    yield
        finally:
            self.stop(label)

    def record(self, label: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self._seconds.setdefault(label, []).append(seconds)

    def mark(self, label: str) -> None:
        """Begin to measure, again if it was measured already."""
        self._started[label] = time.perf_counter()

    def get_elapsed(self, label: str) -> list[float]:
        """Return all measurements of a label, in seconds.

        Raises:
            KeyError: There are none.
        """
        return list(self._seconds[label])

    def reduce(self, label: str, operation: str = "mean") -> float:
        """Return one statistic of a label: mean, median, min, max, std (of the population), sum or count.

        Raises:
            ValueError: The operation is unknown, or there are no measurements.
        """
        return float(statistics.reduce("p50" if operation == "median" else operation, self._seconds.get(label, [])))

    def get_timing_metrics(self, reduction_op: str | Mapping[str, str] = "mean") -> dict[str, float]:
        """Return one statistic of each label, the same for all or by label."""
        if isinstance(reduction_op, str):
            return {label: self.reduce(label, reduction_op) for label in self._seconds}
        return {label: self.reduce(label, reduction_op.get(label, "mean")) for label in self._seconds}

    def reset(self, label: str | None = None) -> None:
        """Forget the measurements of a label, or all."""
        for name in [*self._seconds, *self._started] if label is None else [label]:
            self._seconds.pop(name, None)
            self._started.pop(name, None)
