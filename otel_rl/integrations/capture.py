"""Records values that a trainer logs to W&B, TensorBoard, MLflow or SwanLab itself.

`OTEL_RL_CAPTURE=wandb,tensorboard otel-rl run -- python train.py`, or `capture("wandb")` in code before the tracker is
used. The tracker gets its values first and unchanged. Values that cannot be recorded are counted. Names are those of
the tracker; nested ones are joined as in W&B's charts (`loss.policy`). The step is the one in the call. Without one,
W&B's step is `global_step`, `train/global_step` or `trainer/global_step` among the values, else the counter of its run.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.integrations.patches import Patches, harmless
from otel_rl.integrations.recording import Recording, flat, unless_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_AXES = ("global_step", "train/global_step", "trainer/global_step")
_last_step = [-1]
_OWN_THREADS = "otel-rl-"  # the names of otel-rl's threads, which write to trackers too
Call = tuple[tuple[Any, ...], dict[str, Any]]


def patch_wandb(module: Any, patches: Patches) -> None:
    """Record what goes through `wandb.Run.log`."""
    recorder = _Recorder()

    def log(function: Callable[..., Any], run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = getattr(run, "_local_step", None)
        answer = function(*args, **kwargs)
        with harmless("capture"):
            given = dict(zip(("data", "step"), args, strict=False)) | kwargs
            data = given.get("data") or {}
            steps = [data[name] for name in _AXES if isinstance(data.get(name), int)]
            step = next((step for step in (*steps, given.get("step")) if step is not None), before)
            recorder.record(dict(flat(data, between=".")), step, project=getattr(run, "project", ""))
        return answer

    def finish(run: Any, given: dict[str, Any]) -> None:
        recorder.finish()

    patches.wrap(module, "Run.log", log)
    patches.observe(module, "Run.finish", (), finish, what="capture", first=True)


def patch_summary_writer(module: Any, patches: Patches) -> None:
    """Record what goes through a `SummaryWriter`'s `add_scalar` and `add_scalars`; without a step it is step 0."""
    recorder = _Recorder()

    def one(writer: Any, given: dict[str, Any]) -> None:
        recorder.record({str(given["tag"]): given["scalar_value"]}, given.get("global_step") or 0)

    def several(writer: Any, given: dict[str, Any]) -> None:
        values = {f"{given['main_tag']}/{name}": value for name, value in given["tag_scalar_dict"].items()}
        recorder.record(values, given.get("global_step") or 0)

    for name, arguments, record in (
        ("add_scalar", ("tag", "scalar_value", "global_step"), one),
        ("add_scalars", ("main_tag", "tag_scalar_dict", "global_step"), several),
    ):
        patches.observe(module, f"SummaryWriter.{name}", arguments, record, what="capture")


def patch_mlflow(module: Any, patches: Patches) -> None:
    """Record what goes through a `MlflowClient`, which the fluent interface uses too; without a step it is step 0."""
    recorder = _Recorder()

    def one(client: Any, given: dict[str, Any]) -> None:
        recorder.record({str(given["key"]): given["value"]}, given.get("step") or 0)

    def batch(client: Any, given: dict[str, Any]) -> None:
        of_step: dict[int, dict[str, Any]] = {}
        for metric in given.get("metrics") or ():
            of_step.setdefault(metric.step or 0, {})[metric.key] = metric.value
        for step, values in of_step.items():
            recorder.record(values, step)

    names = ("run_id", "key", "value", "timestamp", "step")
    patches.observe(module, "MlflowClient.log_metric", names, one, what="capture")
    patches.observe(module, "MlflowClient.log_batch", ("run_id", "metrics"), batch, what="capture")


def patch_swanlab(module: Any, patches: Patches) -> None:
    """Record what goes through SwanLab's `log`."""
    recorder = _Recorder()

    def log(run: Any, given: dict[str, Any]) -> None:
        step = given.get("step")
        recorder.record(given.get("data") or {}, run._ctx._global_step if step is None else step)

    patches.observe(module, "Run.log", ("data", "step"), log, what="capture")


def last_step() -> int:
    """Return the highest step of the values so far, -1 before the first one."""
    return _last_step[0]


class _Recorder:
    """Records the values of one tracker. Begins a run if there is none, and gives up if a setting is wrong."""

    def __init__(self) -> None:
        self._given_up = False
        self._recording: Recording | None = None

    def record(self, values: Mapping[str, Any], step: int | None, **options: str) -> None:
        """Record the numbers among the values."""
        if self._given_up or threading.current_thread().name.startswith(_OWN_THREADS):
            return
        numbers = {name: value for name, value in values.items() if name not in _AXES and _is_number(value)}
        if not numbers:
            return
        try:
            if (run := otel_rl.current()) is None:
                self._recording = Recording(**unless_set(**options))
                run = self._recording.run
        except otel_rl.SettingsError:
            self._given_up = True
            raise
        _last_step[0] = max(_last_step[0], -1 if step is None else step)
        run.log({k: int(v) if isinstance(v, bool) else v for k, v in numbers.items()}, step=step)

    def finish(self) -> None:
        """End the run with the tracker's, if this object began it."""
        if self._recording is not None:
            self._recording.finish()


def _is_number(value: Any) -> bool:
    return not isinstance(value, (str, bytes)) and hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0
