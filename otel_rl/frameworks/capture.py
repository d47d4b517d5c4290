"""The hooks into TensorBoard, SwanLab and trackio that record what a trainer logs there itself.

`OTEL_RL_CAPTURE=wandb,tensorboard otel-rl run -- python train.py`, or `capture("wandb")` in code before the tracker is
used. The tracker gets its values first and unchanged. `tracker` says what is recorded of them, `tracker_runs` in which
run it is. `wandb_runs` has the hooks into W&B, and `mlflow_runs` those into MLflow.
"""

from __future__ import annotations

import inspect
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from otel_rl.frameworks.patches import Patches, harmless
from otel_rl.frameworks.tracker import Tracker, on_step
from otel_rl.frameworks.tracker_runs import TRACKER_RUNS
from otel_rl.frameworks.wandb_axes import Axes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.frameworks.tracker_run import TrackerRun

__all__ = ["on_step"]
_SECONDS = "time"
"""The end of the tag of a value that is drawn over seconds, too."""
_OF_SWANLAB = ("group", "tags", "description", "job_type")
_NUMBERS = ("scalar", "hparams")
_DRAWN_WITHOUT_VALUES = ("graph", "custom_scalars", "onnx", "openvino")
"""How methods of a `SummaryWriter` are called that add a drawing of the model, or a layout."""


class _Writers:
    """The writers of TensorBoard, which draws one curve for all writers of a directory."""

    def __init__(self) -> None:
        self.tracker = Tracker("tensorboard")
        self._runs: WeakKeyDictionary[Any, TrackerRun] = WeakKeyDictionary()

    def of(self, writer: Any) -> TrackerRun:
        """Return the run of a writer."""
        if writer not in self._runs:
            self._runs[writer] = self._open(writer)
        run = self._runs[writer]
        run.users.add(writer)
        return run

    def close(self, writer: Any) -> None:
        """Note that a writer logs no more."""
        self.tracker.end(self.of(writer), writer)
        self._runs.pop(writer, None)

    def _open(self, writer: Any) -> TrackerRun:
        place = str(getattr(writer, "log_dir", None) or getattr(writer, "logdir", ""))
        # Once: the file stays where it is when the script changes its directory. An address is not a path.
        place = place if "://" in place else os.path.abspath(place)  # noqa: PTH100
        run = self.tracker.run(place, writer, name=os.path.basename(place), directory=place)  # noqa: PTH119
        if not run.has_params:
            run.params({"tensorboard.directory": place})
        return run


def patch_summary_writer(module: Any, patches: Patches) -> None:
    """Record what goes through a `SummaryWriter`: scalars, without a step at step 0, and hyper-parameters."""
    writers = _Writers()
    steps_of: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
    in_hparams: set[int] = set()  # the threads that are in `add_hparams`, which makes another writer

    def record(writer: Any, values: Mapping[str, Any], step: Any) -> None:
        if threading.get_ident() not in in_hparams:
            # The writer cuts a fraction off, as of `10.7`.
            writers.tracker.record(writers.of(writer), values, 0 if step is None else int(step), own=step is None)

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
        in_hparams.add(thread := threading.get_ident())
        try:
            answer = function(*args, **kwargs)
        finally:
            in_hparams.discard(thread)
        with harmless("capture"):
            given = inspect.signature(function).bind(*args, **kwargs).arguments  # tensorboardX has another order
            writers.of(writer).params(dict(given["hparam_dict"]))
            record(writer, dict(given["metric_dict"]), given.get("global_step"))
        return answer

    def close(writer: Any, given: dict[str, Any]) -> None:
        if threading.get_ident() not in in_hparams:
            writers.close(writer)

    def other(what: str, writer: Any, given: dict[str, Any]) -> None:
        if threading.get_ident() not in in_hparams:
            writers.tracker.not_captured(
                writers.of(writer), tag if isinstance(tag := given.get("tag"), str) else what, what
            )

    def begin(writer: Any, given: dict[str, Any]) -> None:
        if threading.get_ident() not in in_hparams:
            if given.get("purge_step") is not None:
                TRACKER_RUNS.repeat(writers.of(writer))
            TRACKER_RUNS.make_way(writers.of(writer))

    patches.wrap(module, "SummaryWriter.add_hparams", hparams)
    for name, arguments, observed in (
        ("__init__", ("logdir", "comment", "purge_step"), begin),
        ("add_scalar", ("tag", "scalar_value", "global_step"), scalar),
        ("add_scalars", ("main_tag", "tag_scalar_dict", "global_step"), scalars),
        ("close", (), close),
    ):
        patches.observe(module, f"SummaryWriter.{name}", arguments, observed, what="capture")
    for name in dir(module.SummaryWriter):
        what = name.removeprefix("add_")
        if what != name and not what.startswith((*_NUMBERS, *_DRAWN_WITHOUT_VALUES)):
            patches.observe(module, f"SummaryWriter.{name}", ("tag",), partial(other, what), what="capture")


def patch_skrl(module: Any, patches: Patches) -> None:
    """Record what goes through the writer that skrl has of its own."""
    writers = _Writers()

    def record_scalar(writer: Any, given: dict[str, Any]) -> None:
        writers.tracker.record(writers.of(writer), {given["tag"]: given["value"]}, given["timestep"])

    patches.observe(module, "SummaryWriter.add_scalar", (), record_scalar, what="capture")


def patch_swanlab(module: Any, patches: Patches) -> None:
    """Record what goes through SwanLab's `log`, at the steps of its axes, else at its counter."""
    tracker = Tracker("swanlab")
    axes: WeakKeyDictionary[Any, Axes] = WeakKeyDictionary()

    def axes_of(run: Any) -> Axes:
        return axes.setdefault(run, Axes(tracker.say_once, "swanlab", usual=()))

    def of(run: Any) -> TrackerRun:
        settings = run._ctx.config.settings
        known = tracker.run(run.id, run, name=settings.experiment.name, project=settings.project.name)
        if not known.has_params:
            own = {name: getattr(settings.experiment, name, None) for name in _OF_SWANLAB}
            own = {f"swanlab.{name}": value for name, value in ({"id": run.id} | own).items() if value}
            known.params(_config_of(run) | own)
        return known

    def define(run: Any, given: dict[str, Any]) -> None:
        axis = given.get("x_axis") or given.get("step_metric")
        axes_of(run).define(str(given["key"]), axis, overwrite=bool(given.get("overwrite")))

    def log(run: Any, given: dict[str, Any]) -> None:
        if run.mode == "disabled":
            tracker.say_off()
        step = given.get("step")
        counter = tracker.count(of(run), run, step, run._ctx._global_step)
        values = tracker.flat(given.get("data") or {})
        for at, of_step in axes_of(run).by_step(values, step, counter).items():
            tracker.record(of(run), of_step, at, own=at == counter and step is None)

    def finish(run: Any, given: dict[str, Any]) -> None:
        known = of(run)
        known.params(_config_of(run))
        tracker.end(known, run, ends=True)

    inner = "_log_impl" if hasattr(module.Run, "_log_impl") else "log"  # `async_log` calls the inner one alone
    patches.observe(module, f"Run.{inner}", ("data", "step"), log, what="capture")
    patches.observe(module, "Run.define_metric", ("key",), define, what="capture")
    patches.observe(module, "Run.finish", (), finish, what="capture", first=True)


def patch_trackio(module: Any, patches: Patches) -> None:
    """Record what goes through trackio's `log`; without a step it is at trackio's counter."""
    tracker = Tracker("trackio")

    def of(run: Any) -> TrackerRun:
        known = tracker.run(f"{run.project}/{run.id}", run, name=run.name, project=run.project)
        if not known.has_params:
            own = {f"trackio.{name}": value for name in ("id", "group") if (value := getattr(run, name, None))}
            known.params(_config_of(run) | own)
        return known

    def log(run: Any, given: dict[str, Any]) -> None:
        step = given.get("step")
        # trackio has counted this call already.
        at = tracker.count(of(run), run, step, run._next_step - 1)
        tracker.record(of(run), given["metrics"], at, own=step is None)

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
