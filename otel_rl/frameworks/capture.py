"""The hooks into TensorBoard, MLflow, SwanLab and trackio that record what a trainer logs there itself.

`OTEL_RL_CAPTURE=wandb,tensorboard otel-rl run -- python train.py`, or `capture("wandb")` in code before the tracker is
used. The tracker gets its values first and unchanged. `tracker` says what is recorded of them, `tracker_runs` in which
run it is. `wandb_runs` has the hooks into W&B.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from otel_rl.frameworks.patches import Patches, harmless
from otel_rl.frameworks.tracker import Tracker, on_step
from otel_rl.frameworks.tracker_runs import TRACKER_RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.frameworks.tracker_run import TrackerRun

__all__ = ["on_step"]
_SECONDS = "time"
"""The end of the tag of a value that is drawn over seconds, too."""
_NO_NUMBERS = ("audio", "figure", "histogram", "image", "images", "mesh", "text", "video")
"""Other things that a `SummaryWriter` adds."""
_OF_MLFLOW = ("mlflow.", "system/")
"""How tags begin that MLflow sets itself, and metrics that a thread of its own counts from 0."""


def patch_summary_writer(module: Any, patches: Patches) -> None:
    """Record what goes through a `SummaryWriter`: scalars, without a step at step 0, and hyper-parameters."""
    tracker = Tracker("tensorboard")
    steps_of: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
    hparams_of: list[Any] = []  # the writers whose `add_hparams` runs, which makes another writer

    def run_of(writer: Any) -> TrackerRun:
        return _directory_run(tracker, writer, getattr(writer, "log_dir", None) or getattr(writer, "logdir", ""))

    def record(writer: Any, values: Mapping[str, Any], step: Any) -> None:
        if not hparams_of:
            # The writer cuts a fraction off, as of `10.7`.
            tracker.record(run_of(writer), values, 0 if step is None else int(step), own=step is None)

    def scalar(writer: Any, given: dict[str, Any]) -> None:
        value, tag, step = given["scalar_value"], str(given["tag"]), given.get("global_step")
        steps = steps_of.setdefault(writer, {})
        drawn, _, axis = tag.rpartition("/")
        if axis == _SECONDS and drawn in steps:
            step = steps[drawn]  # the same value, drawn a second time over seconds: rsl_rl
        steps[tag] = step
        record(writer, {tag: float(value) if isinstance(value, str) else value}, step)

    def scalars(writer: Any, given: dict[str, Any]) -> None:
        record(writer, {str(given["main_tag"]): dict(given["tag_scalar_dict"])}, given.get("global_step"))

    def hparams(function: Callable[..., Any], writer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = ("hparam_dict", "metric_dict", "hparam_domain_discrete", "run_name", "global_step")
        if not (given := dict(zip(names, args, strict=False)) | kwargs).keys() >= {*names[:2]}:
            return function(*args, **kwargs)
        hparams_of.append(writer)
        try:
            answer = function(*args, **kwargs)
        finally:
            hparams_of.remove(writer)
        with harmless("capture"):
            run_of(writer).params(dict(given["hparam_dict"]))
            record(writer, dict(given["metric_dict"]), given.get("global_step"))
        return answer

    def close(writer: Any, given: dict[str, Any]) -> None:
        if not hparams_of:
            tracker.end(run_of(writer), writer)

    def other(what: str, writer: Any, given: dict[str, Any]) -> None:
        if not hparams_of:
            tracker.not_captured(run_of(writer), given.get("tag"), what)

    def begin(writer: Any, given: dict[str, Any]) -> None:
        if not hparams_of:
            TRACKER_RUNS.make_way(run_of(writer))

    patches.wrap(module, "SummaryWriter.add_hparams", hparams)
    for name, arguments, observed in (
        ("__init__", (), begin),
        ("add_scalar", ("tag", "scalar_value", "global_step"), scalar),
        ("add_scalars", ("main_tag", "tag_scalar_dict", "global_step"), scalars),
        ("close", (), close),
    ):
        patches.observe(module, f"SummaryWriter.{name}", arguments, observed, what="capture")
    for what in _NO_NUMBERS:
        patches.observe(module, f"SummaryWriter.add_{what}", ("tag",), partial(other, what), what="capture")


def patch_skrl(module: Any, patches: Patches) -> None:
    """Record what goes through the writer that skrl has of its own."""
    tracker = Tracker("tensorboard")

    def record_scalar(writer: Any, given: dict[str, Any]) -> None:
        run = _directory_run(tracker, writer, getattr(writer, "log_dir", ""))
        tracker.record(run, {given["tag"]: given["value"]}, given["timestep"])

    patches.observe(module, "SummaryWriter.add_scalar", (), record_scalar, what="capture")


def _directory_run(tracker: Tracker, writer: Any, directory: object) -> TrackerRun:
    """Return the run of a writer: TensorBoard draws one curve for all writers of a directory."""
    place = str(directory)
    place = place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - an address is no path
    run = tracker.run(place, writer, name=os.path.basename(place), directory=place)  # noqa: PTH119 - likewise
    if not run.has_params:
        run.params({"tensorboard.directory": place})
    return run


def patch_mlflow(module: Any, patches: Patches) -> None:
    """Record what goes through a `MlflowClient`, which the fluent interface uses too; without a step it is step 0."""
    tracker = Tracker("mlflow")
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
        record(given["run_id"], {str(given["key"]): given["value"]}, given.get("step"))

    def batch(client: Any, given: dict[str, Any]) -> None:
        of_step: dict[int, dict[str, Any]] = {}
        for each in given.get("metrics") or ():
            of_step.setdefault(each.step or 0, {})[each.key] = each.value
        for step, values in of_step.items():
            record(given["run_id"], values, step)
        if params := {each.key: each.value for each in given.get("params") or ()}:
            of(given["run_id"]).params(params)
        if others := tags({each.key: each.value for each in given.get("tags") or ()}):
            of(given["run_id"]).params(others)

    def param(client: Any, given: dict[str, Any]) -> None:
        of(given["run_id"]).params({str(given["key"]): given["value"]})

    def tag(client: Any, given: dict[str, Any]) -> None:
        of(given["run_id"]).params(tags({str(given["key"]): given["value"]}))

    def end(client: Any, given: dict[str, Any]) -> None:
        run = of(given["run_id"])
        tracker.end(run, run)

    for name, arguments, observed in (
        ("get_experiment", (), know),
        ("get_experiment_by_name", (), know),
        ("create_run", (), begin),
        ("get_run", (), look_up),
        ("log_metric", ("run_id", "key", "value", "timestamp", "step"), metric),
        ("log_param", ("run_id", "key", "value"), param),
        ("log_batch", ("run_id", "metrics", "params", "tags"), batch),
        ("set_tag", ("run_id", "key", "value"), tag),
        ("set_terminated", ("run_id",), end),
    ):
        patches.observe(module, f"MlflowClient.{name}", arguments, observed, what="capture")


def patch_swanlab(module: Any, patches: Patches) -> None:
    """Record what goes through SwanLab's `log`; its own counter has the step of a call without one."""
    tracker = Tracker("swanlab")

    def of(run: Any) -> TrackerRun:
        settings = run._ctx.config.settings
        known = tracker.run(run.id, run, name=settings.experiment.name, project=settings.project.name)
        if not known.has_params:
            known.params(_config_of(run) | {"swanlab.id": run.id})
        return known

    def log(run: Any, given: dict[str, Any]) -> None:
        step = given.get("step")
        if run.mode == "disabled":
            tracker.say_off()
        tracker.record(
            of(run), given.get("data") or {}, run._ctx._global_step if step is None else step, own=step is None
        )

    def finish(run: Any, given: dict[str, Any]) -> None:
        known = of(run)
        known.params(_config_of(run))
        tracker.end(known, run, ends=True)

    patches.observe(module, "Run.log", ("data", "step"), log, what="capture")
    patches.observe(module, "Run.finish", (), finish, what="capture", first=True)


def patch_trackio(module: Any, patches: Patches) -> None:
    """Record what goes through trackio's `log`; without a step it is at trackio's counter."""
    tracker = Tracker("trackio")

    def of(run: Any) -> TrackerRun:
        known = tracker.run(f"{run.project}/{run.id}", run, name=run.name, project=run.project)
        if not known.has_params:
            known.params(_config_of(run) | {"trackio.id": run.id})
        return known

    def log(run: Any, given: dict[str, Any]) -> None:
        step = given.get("step")
        # trackio has counted this call already.
        tracker.record(of(run), given["metrics"], run._next_step - 1 if step is None else step, own=step is None)

    def log_system(run: Any, given: dict[str, Any]) -> None:
        for name in given["metrics"]:
            tracker.not_captured(of(run), name, "value that has a time and no step")

    def finish(run: Any, given: dict[str, Any]) -> None:
        known = of(run)
        known.params(_config_of(run))
        tracker.end(known, run, ends=True)

    patches.observe(module, "Run.log", ("metrics", "step"), log, what="capture")
    patches.observe(module, "Run.log_system", ("metrics",), log_system, what="capture")
    patches.observe(module, "Run.finish", (), finish, what="capture", first=True)


def _config_of(run: Any) -> dict[str, Any]:
    """Return the configuration of a run, without what the tracker adds."""
    return {str(name): value for name, value in dict(run.config).items() if not str(name).startswith("_")}
