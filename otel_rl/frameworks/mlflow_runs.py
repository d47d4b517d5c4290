"""The hooks into MLflow that record what a trainer logs there itself."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.frameworks.patches import Patches
    from otel_rl.frameworks.tracker_run import TrackerRun

_OF_MLFLOW = ("mlflow.", "system/")
"""How tags begin that MLflow sets itself, and metrics that a thread of its own counts from 0."""
_NAME = "mlflow.runName"
_FILES = ("dict", "figure", "image", "table", "text")
_NOBODY = "none"
"""The name of a curve of no data set or model, where it is not the first one of a metric."""
_METRIC = ("run_id", "key", "value", "timestamp", "step", "synchronous", "dataset_name", "dataset_digest", "model_id")


class MetricNames:
    """The names of metrics of which MLflow has a curve for each data set and each model.

    A name is one curve as long as its steps grow, as where each checkpoint is a model. A data set or a model that is
    behind the last step has a curve of its own, which begins with its name.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._apart: set[tuple[str, str, str, str]] = set()

    def of(self, run_id: str, metric: Mapping[str, Any]) -> str:
        """Return the name of a metric."""
        name, step = str(metric["key"]), metric.get("step") or 0
        for kind in ("dataset_name", "model_id"):
            owner = metric.get(kind) or _NOBODY
            if self._is_apart((run_id, kind, name), step, owner):
                name = f"{owner}/{name}"
        return name

    def _is_apart(self, curve: tuple[str, str, str], step: int, owner: str) -> bool:
        before = self._last.get(curve)
        if before is not None and before[0] != owner and step <= before[1]:
            self._apart.add((*curve, owner))
        if (*curve, owner) in self._apart:
            return True
        self._last[curve] = owner, step
        return False


def patch_mlflow(module: Any, patches: Patches) -> None:
    """Record what goes through a `MlflowClient`, which the fluent interface uses too; without a step it is step 0."""
    tracker = Tracker("mlflow")
    names = MetricNames()
    experiments: dict[str, str] = {}
    """The names of experiments by their ids."""

    def know(client: Any, given: dict[str, Any]) -> None:
        if (experiment := given["return"]) is not None:
            experiments[str(experiment.experiment_id)] = str(experiment.name)

    def look_up(client: Any, given: dict[str, Any]) -> TrackerRun:
        info, data = given["return"].info, given["return"].data
        run = of(info.run_id, info.run_name, experiments.get(str(info.experiment_id)))
        if not run.has_params:
            run.params({"mlflow.run_id": info.run_id} | dict(data.params) | tags(data.tags))
        return run

    def begin(client: Any, given: dict[str, Any]) -> None:
        run = look_up(client, given)
        run.users.add(run)

    def of(run_id: str, name: object = None, project: object = None) -> TrackerRun:
        return tracker.run(str(run_id), name=name, project=project)

    def tags(given: Mapping[str, Any]) -> dict[str, Any]:
        return {f"mlflow.tags.{name}": value for name, value in given.items() if not name.startswith(_OF_MLFLOW[0])}

    def record(run_id: str, values: Mapping[str, Any], step: Any) -> None:
        run = of(run_id)
        run.users.add(run)
        counts = not all(name.startswith(_OF_MLFLOW[1]) for name in values)
        tracker.record(run, values, 0 if step is None else step, counts=counts, own=step is None)

    def metric(client: Any, given: dict[str, Any]) -> None:
        record(given["run_id"], {names.of(given["run_id"], given): given["value"]}, given.get("step"))

    def batch(client: Any, given: dict[str, Any]) -> None:
        of_step: dict[int, dict[str, Any]] = {}
        for each in given.get("metrics") or ():
            of_step.setdefault(each.step or 0, {})[names.of(given["run_id"], dict(each))] = each.value
        for step, values in of_step.items():
            record(given["run_id"], values, step)
        if params := {each.key: each.value for each in given.get("params") or ()}:
            of(given["run_id"]).params(params)
        if others := tags({each.key: each.value for each in given.get("tags") or ()}):
            of(given["run_id"]).params(others)

    def param(client: Any, given: dict[str, Any]) -> None:
        of(given["run_id"]).params({str(given["key"]): given["value"]})

    def tag(client: Any, given: dict[str, Any]) -> None:
        if given["key"] == _NAME:
            of(given["run_id"], given["value"])
        of(given["run_id"]).params(tags({str(given["key"]): given["value"]}))

    def rename(client: Any, given: dict[str, Any]) -> None:
        of(given["run_id"], given.get("name"))

    def file(what: str, client: Any, given: dict[str, Any]) -> None:
        tracker.not_captured(of(given["run_id"]), given.get("artifact_file") or given.get("key"), what)

    def end(client: Any, given: dict[str, Any]) -> None:
        run = of(given["run_id"])
        tracker.end(run, run)

    for name, arguments, observed in (
        ("create_run", (), begin),
        ("get_run", (), look_up),
        ("log_metric", _METRIC, metric),
        ("log_param", ("run_id", "key", "value"), param),
        ("log_batch", ("run_id", "metrics", "params", "tags"), batch),
        ("set_tag", ("run_id", "key", "value"), tag),
        ("update_run", ("run_id", "status", "name"), rename),
        ("set_terminated", ("run_id",), end),
    ):
        patches.observe(module, f"MlflowClient.{name}", arguments, observed, what="capture")
    for what in _FILES:
        arguments = ("run_id", what, "artifact_file")
        patches.observe(module, f"MlflowClient.log_{what}", arguments, partial(file, what), what="capture")
    for name in ("get_experiment", "get_experiment_by_name"):  # `set_experiment` calls this client alone
        patches.observe(module, f"TrackingServiceClient.{name}", (), know, what="capture")
