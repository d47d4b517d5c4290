"""Records values that a trainer logs to W&B, TensorBoard, MLflow, SwanLab or trackio itself.

`OTEL_RL_CAPTURE=wandb,tensorboard otel-rl run -- python train.py`, or `capture("wandb")` in code before the tracker is
used. The tracker gets its values first and unchanged. Every number that it charts is recorded, a truth value as 0 or 1
and an array of one element as its element; everything else is counted. Names are those of the tracker; nested ones are
joined as in its charts (`loss.policy` in W&B), otherwise with a slash (`loss/policy`), as `Run.log` does.
`wandb_axes` says at which step a value of W&B is.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import otel_rl
from otel_rl.frameworks.charted import element, flat
from otel_rl.frameworks.instrument import capture
from otel_rl.frameworks.patches import Patches, harmless
from otel_rl.frameworks.recording import Recording, unless_set
from otel_rl.frameworks.wandb_axes import Axes
from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.trainer.current import recorder_of, turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

on_step: list[Callable[[int], None]] = []
"""Called with the step of each value, before it is recorded."""
_OWN_THREADS = "otel-rl-"  # the names of otel-rl's threads, which write to trackers too


def patch_wandb(module: Any, patches: Patches) -> None:
    """Record what goes through `wandb.Run.log`, at the steps of the axes that `define_metric` declares."""
    recorder = _TrackerRecorder("wandb", between=".")
    axes_of: WeakKeyDictionary[Any, Axes] = WeakKeyDictionary()

    def define(run: Any, given: dict[str, Any]) -> None:
        axis = given.get("step_metric")
        axes_of.setdefault(run, Axes()).define(given["name"], getattr(axis, "name", axis))

    def log(function: Callable[..., Any], run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Read before the call, which raises it: W&B logs at the old value.
        counter = getattr(run, "_local_step", None)
        answer = function(*args, **kwargs)
        with harmless("capture"):
            given = dict(zip(("data", "step"), args, strict=False)) | kwargs
            values = recorder.flat(given.get("data") or {})
            axes = axes_of.setdefault(run, Axes())
            for step, of_step in axes.by_step(values, given.get("step"), counter).items():
                recorder.record(of_step, step, project=getattr(run, "project", ""))
        return answer

    def finish(run: Any, given: dict[str, Any]) -> None:
        recorder.finish()

    patches.wrap(module, "Run.log", log)
    patches.observe(module, "Run.define_metric", ("name", "step_metric"), define, what="capture")
    patches.observe(module, "Run.finish", (), finish, what="capture", first=True)


def patch_summary_writer(module: Any, patches: Patches) -> None:
    """Record what goes through a `SummaryWriter`'s `add_scalar` and `add_scalars`; without a step it is step 0."""
    recorder = _TrackerRecorder("tensorboard")

    def record_scalar(writer: Any, given: dict[str, Any]) -> None:
        value = given["scalar_value"]
        value = float(value) if isinstance(value, str) else value
        recorder.record({str(given["tag"]): value}, given.get("global_step") or 0)

    def several(writer: Any, given: dict[str, Any]) -> None:
        recorder.record({str(given["main_tag"]): dict(given["tag_scalar_dict"])}, given.get("global_step") or 0)

    for name, arguments, record in (
        ("add_scalar", ("tag", "scalar_value", "global_step"), record_scalar),
        ("add_scalars", ("main_tag", "tag_scalar_dict", "global_step"), several),
    ):
        patches.observe(module, f"SummaryWriter.{name}", arguments, record, what="capture")


def patch_skrl(module: Any, patches: Patches) -> None:
    """Record what goes through the writer that skrl has of its own."""
    recorder = _TrackerRecorder("tensorboard")

    def record_scalar(writer: Any, given: dict[str, Any]) -> None:
        recorder.record({given["tag"]: given["value"]}, given["timestep"])

    patches.observe(module, "SummaryWriter.add_scalar", (), record_scalar, what="capture")


def patch_wandb_tensorboard(module: Any, patches: Patches) -> None:
    """Capture TensorBoard too where W&B reads its files: `sync_tensorboard=True`."""
    patches.observe(module, "patch", (), lambda _, given: capture("tensorboard"), what="capture")


def patch_mlflow(module: Any, patches: Patches) -> None:
    """Record what goes through a `MlflowClient`, which the fluent interface uses too; without a step it is step 0."""
    recorder = _TrackerRecorder("mlflow")

    def record_metric(client: Any, given: dict[str, Any]) -> None:
        recorder.record({str(given["key"]): given["value"]}, given.get("step") or 0)

    def record_batch(client: Any, given: dict[str, Any]) -> None:
        of_step: dict[int, dict[str, Any]] = {}
        for metric in given.get("metrics") or ():
            of_step.setdefault(metric.step or 0, {})[metric.key] = metric.value
        for step, values in of_step.items():
            recorder.record(values, step)

    names = ("run_id", "key", "value", "timestamp", "step")
    patches.observe(module, "MlflowClient.log_metric", names, record_metric, what="capture")
    patches.observe(module, "MlflowClient.log_batch", ("run_id", "metrics"), record_batch, what="capture")


def patch_swanlab(module: Any, patches: Patches) -> None:
    """Record what goes through SwanLab's `log`."""
    recorder = _TrackerRecorder("swanlab")

    def log(run: Any, given: dict[str, Any]) -> None:
        step = given.get("step")
        recorder.record(given.get("data") or {}, run._ctx._global_step if step is None else step)

    patches.observe(module, "Run.log", ("data", "step"), log, what="capture")


def patch_trackio(module: Any, patches: Patches) -> None:
    """Record what goes through trackio's `log`; without a step it is at trackio's counter."""
    recorder = _TrackerRecorder("trackio")

    def log(run: Any, given: dict[str, Any]) -> None:
        step = given.get("step")
        # trackio has counted this call already.
        recorder.record(given["metrics"], run._next_step - 1 if step is None else step)

    patches.observe(module, "Run.log", ("metrics", "step"), log, what="capture")


class _TrackerRecorder:
    """Records the values of one tracker. Begins a run if there is none, and gives up if a setting is wrong.

    Args:
        tracker: The name of the tracker.
        between: How its charts join nested names.
    """

    def __init__(self, tracker: str, between: str = "/") -> None:
        self._tracker, self._between = tracker, between
        self._given_up = False
        self._recording: Recording | None = None

    def flat(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values under the names of the tracker's charts."""
        return dict(flat(values, between=self._between))

    def record(self, values: Mapping[str, Any], step: int | None, **options: str) -> None:
        """Record the numbers among the values, and count the others."""
        if self._given_up or threading.current_thread().name.startswith(_OWN_THREADS):
            return
        values = self.flat(values)
        numbers = {name: number for name, value in values.items() if (number := _number(value)) is not None}
        run = otel_rl.current()
        if run is None and not numbers:
            return
        try:
            if run is None:
                with turn():  # its first values may come from several threads at once
                    if (run := otel_rl.current()) is None:
                        self._recording = Recording(**unless_set(**options))
                        run = self._recording.run
        except otel_rl.SettingsError:
            # Once: the trainer logs in every step, and would repeat the error (hooks/test_capture.py).
            self._given_up = True
            raise
        for name, value in values.items():
            if name not in numbers:
                what = f"{text_of(name)}: --capture {self._tracker} records numbers, not a {type(value).__name__}"
                recorder_of(run).refuse("not_captured", what)
        if step is not None:
            for see in on_step:
                see(step)
        run.log(numbers, step=step)

    def finish(self) -> None:
        """End the run with the tracker's, if this object began it."""
        if self._recording is not None:
            self._recording.finish()


def _number(value: Any) -> Any:
    """Return what trackers chart for a value: a number, or an array without dimensions; `None` if nothing."""
    value = element(value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (str, bytes)):
        return None
    if isinstance(shape := getattr(value, "shape", None), tuple):
        return None if shape else value
    try:
        return float(value) if hasattr(value, "__float__") else None
    except Exception:  # a foreign object may raise anything
        return None
