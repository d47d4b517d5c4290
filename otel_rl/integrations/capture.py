"""What a trainer logs to W&B, TensorBoard, MLflow or SwanLab by itself, recorded too.

`OTEL_RL_CAPTURE=wandb,tensorboard otel-rl run -- python train.py`, or `capture("wandb")` in code before the tracker is
used. The tracker gets what it was given, before and unchanged; what we cannot take is counted, and never raises. Names
are the tracker's. A step is the one that the tracker was told; for W&B the counter of its run where none was told,
unless the values hold one themselves (`global_step`, `train/global_step`, `trainer/global_step`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.integrations.patches import Patches, harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_AXES = ("global_step", "train/global_step", "trainer/global_step")
_OURS = "otel-rl-"  # what threads of our own are called, which write to trackers too
Call = tuple[tuple[Any, ...], dict[str, Any]]


def patch_wandb(module: Any, patches: Patches) -> None:
    """Record what goes through `wandb.Run.log`."""
    recorder = _Recorder()

    def log(function: Callable[..., Any], run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = getattr(run, "_local_step", None)
        answer = function(*args, **kwargs)
        with harmless("capture"):
            data = _argument(0, "data", args, kwargs) or {}
            told = _argument(1, "step", args, kwargs)
            axis = next((data[name] for name in _AXES if isinstance(data.get(name), int)), None)
            step = axis if axis is not None else told if told is not None else before
            recorder.record(data, step, project=getattr(run, "project", ""))
        return answer

    patches.wrap(module, "Run.log", log)


def patch_summary_writer(module: Any, patches: Patches) -> None:
    """Record what goes through a `SummaryWriter`'s `add_scalar` and `add_scalars`; without a step it is step 0."""
    recorder = _Recorder()

    def one(function: Callable[..., Any], writer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = function(*args, **kwargs)
        with harmless("capture"):
            tag, value = _argument(0, "tag", args, kwargs), _argument(1, "scalar_value", args, kwargs)
            recorder.record({str(tag): value}, _argument(2, "global_step", args, kwargs) or 0)
        return answer

    def several(function: Callable[..., Any], writer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = function(*args, **kwargs)
        with harmless("capture"):
            tag, values = _argument(0, "main_tag", args, kwargs), _argument(1, "tag_scalar_dict", args, kwargs)
            step = _argument(2, "global_step", args, kwargs) or 0
            recorder.record({f"{tag}/{name}": value for name, value in values.items()}, step)
        return answer

    patches.wrap(module, "SummaryWriter.add_scalar", one)
    patches.wrap(module, "SummaryWriter.add_scalars", several)


def patch_mlflow(module: Any, patches: Patches) -> None:
    """Record what goes through a `MlflowClient`, which the fluent interface uses too; without a step it is step 0."""
    recorder = _Recorder()

    def one(function: Callable[..., Any], client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = function(*args, **kwargs)
        with harmless("capture"):
            key, value = _argument(1, "key", args, kwargs), _argument(2, "value", args, kwargs)
            recorder.record({str(key): value}, _argument(4, "step", args, kwargs) or 0)
        return answer

    def batch(function: Callable[..., Any], client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = function(*args, **kwargs)
        with harmless("capture"):
            of_step: dict[int, dict[str, Any]] = {}
            for metric in _argument(1, "metrics", args, kwargs) or ():
                of_step.setdefault(metric.step or 0, {})[metric.key] = metric.value
            for step, values in of_step.items():
                recorder.record(values, step)
        return answer

    patches.wrap(module, "MlflowClient.log_metric", one)
    patches.wrap(module, "MlflowClient.log_batch", batch)


def patch_swanlab(module: Any, patches: Patches) -> None:
    """Record what goes through SwanLab's `log`."""
    recorder = _Recorder()

    def log(function: Callable[..., Any], run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = function(*args, **kwargs)
        with harmless("capture"):
            told = _argument(1, "step", args, kwargs)
            step = run._ctx._global_step if told is None else told
            recorder.record(_argument(0, "data", args, kwargs) or {}, step)
        return answer

    patches.wrap(module, "Run.log", log)


def _argument(position: int, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)


class _Recorder:
    """Records what one tracker gets; begins a run for it if there is none, and gives up if that cannot be had."""

    def __init__(self) -> None:
        self._given_up = False

    def record(self, values: Mapping[str, Any], step: int | None, **options: str) -> None:
        """Record what is a number among the values."""
        if self._given_up or threading.current_thread().name.startswith(_OURS):
            return
        numbers = {name: value for name, value in values.items() if name not in _AXES and _is_number(value)}
        if not numbers:
            return
        try:
            given = {name: value for name, value in options.items() if value}
            run = otel_rl.current() or otel_rl.init(**given)  # type: ignore[arg-type] # each of them is text
        except otel_rl.SettingsError:
            self._given_up = True
            raise
        run.log(numbers, step=step)


def _is_number(value: Any) -> bool:
    return not isinstance(value, (str, bytes, bool)) and hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0
