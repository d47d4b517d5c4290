"""Coming from Tunix.

Replace `from tunix.sft.metrics_logger import MetricsLogger, MetricsLoggerOptions` by

    from otel_rl.integrations.tunix import MetricsLogger, MetricsLoggerOptions

and give the options to `TrainingConfig(metrics_logging_options=…)` or `RLTrainingConfig` as before:

    options = MetricsLoggerOptions(log_dir="/tmp/logs", project_name="grpo-gsm8k", flush_every_n_steps=20)
    logger = MetricsLogger(options)
    logger.log("actor", "loss", 0.5, Mode.TRAIN, step=1)  # `actor/train/loss`, as before
    logger.close()

To keep Tunix's logger and add otel-rl to it, set `backend_factories=[LoggingBackend]` in its own options.

The same: the options, the names that backends see, the local history, the geometric mean of perplexities, custom
backends with `log_scalar` and `close`, under `backend_factories` or `backend_kwargs={"custom_backend": …}`. Different:
values are durable when `log` returns. Backends get them from another thread or process, so a slow one does not delay
training, and `flush_every_n_steps` has no effect. The agent emits OpenTelemetry metrics, so no meter provider is
needed. There is no Perfetto file: phases are OpenTelemetry spans.
"""

from __future__ import annotations

import enum
import importlib.util
import logging
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.delivery.log_scalar import adapted
from otel_rl.integrations.recording import Recording
from otel_rl.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)
_OURS = ("tensorboard", "wandb")
_STATISTIC_OF = {"nanmean": "mean", "nanmax": "max", "nanmin": "min", "nansum": "sum", "amax": "max", "amin": "min"}


class Mode(str, enum.Enum):
    """The kind of a value: training or evaluation."""

    TRAIN = "train"
    EVAL = "eval"

    def __str__(self) -> str:
        """Return the text for names."""
        return self.value


@dataclass
class MetricsLoggerOptions:
    """Options of `MetricsLogger`, with Tunix's names.

    Attributes:
        log_dir: The directory of files.
        project_name: The project in trackers.
        run_name: The name of the run; if empty, the time of its start. Two runs of one name stay separate.
        flush_every_n_steps: Accepted for compatibility; logged values are durable at once.
        backend_factories: Factories of backends, instead of TensorBoard and W&B.
        backend_kwargs: Options by backend, and the same under `custom_backend`.
        enable_opentelemetry: Accepted for compatibility; metrics always go to OpenTelemetry too.
    """

    log_dir: str
    project_name: str = "tunix"
    run_name: str = ""
    flush_every_n_steps: int = 100
    backend_factories: list[Callable[[], Any]] = field(default_factory=list)
    backend_kwargs: dict[str, Any] = field(default_factory=dict)
    enable_opentelemetry: bool = False

    def exporters(self) -> list[object]:
        """Return the exporters as `otel_rl.init` takes them.

        Raises:
            SettingsError: A custom backend has no `log_scalar` or no `close`.
        """
        custom = [*self.backend_factories, *self.backend_kwargs.get("custom_backend", ())]
        for factory in custom:
            adapted(factory)
        if custom:
            return custom
        tensorboard = {"log_dir": str(Path(self.log_dir).absolute())}
        chosen: list[object] = [{"tensorboard": tensorboard}]
        if importlib.util.find_spec("wandb") is not None:
            known = {"mode": "offline"} if _without_wandb_key() else {}
            chosen.append({"wandb": known | dict(self.backend_kwargs.get("wandb", {}))})
        return chosen


class MetricsLogger:
    """A logger that sends metrics to the backends of its options, and keeps their history.

    Args:
        metrics_logger_options: The options; `None` keeps the local history only.
        otel_meter_provider: Accepted for compatibility and not used: the agent has its own.
    """

    def __init__(
        self, metrics_logger_options: MetricsLoggerOptions | None = None, *, otel_meter_provider: object = None
    ) -> None:
        self._history: dict[str, list[float]] = {}
        self._recording: Recording | None = None
        options = metrics_logger_options
        if options is not None:
            self._recording = Recording(
                project=options.project_name,
                name=options.run_name or time.strftime("%Y-%m-%d_%H-%M-%S"),
                dir=options.log_dir,
                exporters=options.exporters(),
                dialect="tunix",
            )

    def log(self, metrics_prefix: str, metric_name: str, scalar_value: Any, mode: Mode | str, step: int | None) -> None:
        """Log one value as `{prefix}/{mode}/{name}`. Texts are only logged to the console."""
        name = _name(metrics_prefix, mode, metric_name)
        if isinstance(scalar_value, str) or _is_texts(scalar_value):
            logger.info("step %s %s: %s", step, name, scalar_value)
            return
        self._history.setdefault(name, []).append(float(scalar_value))
        if self._recording is not None:
            self._recording.run.log({name: scalar_value}, step=step)

    def log_buffered(self, metrics: Mapping[str, tuple[Any, Callable[..., Any] | None]], mode: Mode, step: int) -> None:
        """Log values of a micro-batch. The values of one step are reduced together, each by its operator.

        Args:
            metrics: Value and operator (`np.mean`, `np.max`, …) by name; `None` does not reduce. The first
                component of a name is its prefix, `global` if there is only one component.
            mode: Training or evaluation.
            step: The global step.
        """
        for full_name, (value, operator) in metrics.items():
            prefix, slash, name = full_name.partition("/")
            prefix, name = (prefix, name) if slash else ("global", prefix)
            if operator is None or self._recording is None or isinstance(value, str) or _is_texts(value):
                self.log(prefix, name, value, mode, step)
                continue
            statistic = _STATISTIC_OF.get(operator.__name__, operator.__name__)
            self._recording.run.log({f"{_name(prefix, mode, name)}@{statistic}": [value]}, step=step)

    def metric_exists(self, metrics_prefix: str, metric_name: str, mode: Mode | str) -> bool:
        """Return whether the metric was logged."""
        return _name(metrics_prefix, mode, metric_name) in self._history

    def get_metric(self, metrics_prefix: str, metric_name: str, mode: Mode | str) -> float:
        """Return the mean of the logged values; for perplexities, the geometric mean.

        Raises:
            ValueError: The metric was never logged.
        """
        statistic = "geomean" if metric_name == "perplexity" else "mean"
        return float(statistics.reduce(statistic, self._values(metrics_prefix, metric_name, mode)))

    def get_metric_history(self, metrics_prefix: str, metric_name: str, mode: Mode | str) -> Any:
        """Return all logged values: a NumPy array if NumPy is loaded, else a list.

        Raises:
            ValueError: The metric was never logged.
        """
        values = self._values(metrics_prefix, metric_name, mode)
        numpy = sys.modules.get("numpy")
        return list(values) if numpy is None else numpy.asarray(values)

    def close(self) -> None:
        """Wait until the backends have everything, and close them; a second call does nothing."""
        if self._recording is not None:
            self._recording.finish()

    def _values(self, prefix: str, metric: str, mode: Mode | str) -> list[float]:
        name = _name(prefix, mode, metric)
        if name not in self._history:
            raise ValueError(f"unknown metric {name!r}: must be one of {sorted(self._history)}")
        return self._history[name]


class LoggingBackend:
    """A backend for Tunix's own logger, or metrax's: `MetricsLoggerOptions(backend_factories=[LoggingBackend])`.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, **options: Any) -> None:
        self._recording = Recording(**{"dialect": "tunix", **options})

    def log_scalar(self, event: str, value: Any, **kwargs: Any) -> None:
        """Record a value, as a listener of `jax.monitoring`; without a step it is step 0, as in metrax's backends."""
        self._recording.run.log({event.lstrip("/"): value}, step=int(kwargs.get("step") or 0))

    def close(self) -> None:
        """End the run, if this object began it."""
        self._recording.finish()


def _name(prefix: str, mode: Mode | str, name: str) -> str:
    return "/".join(part for part in (prefix.strip("/"), str(mode), name.lstrip("/")) if part)


def _is_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(item, str) for item in value)


def _without_wandb_key() -> bool:
    known = "WANDB_API_KEY" in os.environ or "WANDB_MODE" in os.environ
    return not known and not (Path.home() / ".netrc").exists()
