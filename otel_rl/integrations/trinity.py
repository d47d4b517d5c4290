"""Coming from Trinity-RFT.

Replace `from trinity.utils.monitor import MONITOR, gather_metrics, gather_eval_metrics` by the same names of this
module:

    monitor = get_monitor("mlflow")(project="rft", group="g", name="run", role="explorer", config=config)
    monitor.log(gather_metrics(task_metrics, "rollout"), step=3)
    monitor.log(gather_eval_metrics(eval_metrics, "eval/gsm8k", detailed_stats=True), step=3)
    monitor.close()

Or keep Trinity's own and write `monitor_type: otel_rl` into its configuration. `otel-rl run -- trinity run …` registers
this type. So does a plug-in of one line in a directory of `TRINITY_PLUGIN_DIRS`:

    import otel_rl.integrations.instrument; otel_rl.integrations.instrument.instrument("trinity")

The same: the interface, names with `@`, the suffixes `:mean`, `:sum`, `:max`, `:min`, `:last`. Different: standard
deviations over tasks are of the population, as in Trinity's documentation but not in its code. A list of one value has
the same names as a longer one. Nothing is printed or gathered. `best@k` is in `otel_rl.stats.at_k`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from otel_rl.integrations.recording import Recording
from otel_rl.stats import rollup, statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_rl.integrations.patches import Patches

MONITORS = ("tensorboard", "wandb", "mlflow", "swanlab")
_OVER_LIST = ("mean", "max", "min")


class _Recorded:
    """The calls of a monitor, recorded into a run."""

    _recording: Recording

    def log(self, data: Mapping[str, Any], step: int, commit: bool = False) -> None:
        """Record the metrics of a step; `commit` has no effect."""
        self._recording.run.log(data, step=step)

    def log_table(self, table_name: str, experiences_table: object, step: int) -> None:
        """Record a table: a data frame, columns, or rows. Its texts need `content=True`."""
        self._recording.run.table(table_name, experiences_table, step=step)

    def close(self) -> None:
        """End the run, if this monitor began it, and wait until it is delivered."""
        self._recording.finish()


class Monitor(_Recorded):
    """Records the metrics of one role of a run: the explorer or the trainer.

    Args:
        project: The project in trackers.
        group: The group of all roles of a run.
        name: The name of the run.
        role: `explorer` or `trainer`.
        config: The run's configuration.
        monitor_type: The exporter: `tensorboard`, `wandb`, `mlflow` or `swanlab`.
        monitor_args: Options of that exporter.

    Raises:
        ValueError: The type is unknown.
    """

    def __init__(
        self,
        project: str,
        group: str,
        name: str,
        role: str,
        config: object = None,
        *,
        monitor_type: str = "tensorboard",
        monitor_args: Mapping[str, Any] | None = None,
    ) -> None:
        _check(monitor_type)
        options = dict(monitor_args or {})
        if monitor_type == "wandb":
            options = {"group": group, "tags": [role], **options}
        self._recording = Recording(
            project=project,
            name=f"{name}_{role}",
            config=config,
            exporters=[{monitor_type: options}],
            dialect="trinity",
        )

    def calculate_metrics(self, data: Mapping[str, Any], prefix: str | None = None) -> dict[str, float]:
        """Return mean, maximum and minimum of each list, and each scalar unchanged."""
        found: dict[str, float] = {}
        for name, value in data.items():
            full = f"{prefix}/{name}" if prefix else name
            if isinstance(value, (list, tuple)):
                found |= {
                    f"{full}/{statistic}": statistics.reduce(statistic, value) for statistic in _OVER_LIST if value
                }
            else:
                found[full] = value
        return found


def register(module: Any, patches: Patches) -> None:
    """Register `monitor_type: otel_rl` with Trinity. `OTEL_RL_*` variables configure the run.

    Each role is a run, `{name}_{role}`, as with Trinity's own monitors.
    """

    class OtelRlMonitor(_Recorded, module.Monitor):  # type: ignore[misc] # Trinity's own class
        def __init__(self, project: str, group: str, name: str, role: str, config: object = None) -> None:
            super().__init__(project, name, role, config)
            self._recording = Recording(project=project, name=f"{name}_{role}", config=config, dialect="trinity")

    if "otel_rl" not in module.MONITOR.modules:
        module.MONITOR.register_module("otel_rl", OtelRlMonitor)


def _check(monitor_type: str) -> None:
    if monitor_type not in MONITORS:
        raise ValueError(f"unknown monitor_type={monitor_type!r}: must be one of {', '.join(MONITORS)}")


def get_monitor(monitor_type: str) -> Callable[..., Monitor]:
    """Return a factory of monitors of a type.

    Raises:
        ValueError: The type is unknown.
    """
    _check(monitor_type)
    return partial(Monitor, monitor_type=monitor_type)


def gather_metrics(
    metric_list: Sequence[Mapping[str, float]], prefix: str, output_stats: Sequence[str] = rollup.TRAIN
) -> dict[str, float]:
    """Return statistics over tasks, as `{prefix}/{metric}/{statistic}`; a suffix such as `:sum` asks for one alone."""
    plain, tagged = _split(metric_list)
    return rollup.of_step(plain, prefix, output_stats) | _reduced(tagged, prefix)


def gather_eval_metrics(
    metric_list: Sequence[Mapping[str, float]],
    prefix: str,
    output_stats: Sequence[str] = rollup.DETAILED,
    detailed_stats: bool = False,
) -> dict[str, float]:
    """Return the mean over tasks of each metric, such as `accuracy/best@4`; in detail, all statistics over tasks."""
    plain, tagged = _split(metric_list)
    if detailed_stats:
        return rollup.of_step(plain, prefix, output_stats) | _reduced(tagged, prefix)
    means = rollup.of_step(plain, prefix, ("mean",))
    return {name.removesuffix("/mean"): value for name, value in means.items()} | _reduced(tagged, prefix)


def _split(
    metric_list: Sequence[Mapping[str, float]],
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    tagged = [{k: v for k, v in one.items() if statistics.split_tag(k)[1] is not None} for one in metric_list]
    plain = [{k: v for k, v in one.items() if k not in its} for one, its in zip(metric_list, tagged, strict=True)]
    return plain, tagged


def _reduced(metric_list: Sequence[Mapping[str, float]], prefix: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for one in metric_list:
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    reduced: dict[str, float] = {}
    for name, values in found.items():
        clean, statistic = statistics.split_tag(name)
        reduced[f"{prefix}/{clean}"] = statistics.reduce(statistic or "mean", values)
    return reduced
