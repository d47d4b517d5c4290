"""Trainers that log through a `Tracking`: verl and SkyRL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.integrations.patches import Patches, harmless
from otel_rl.integrations.recording import Recording
from otel_rl.integrations.timers import end_step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def patch_tracking(module: Any, patches: Patches, *, dialect: str, arguments: Sequence[str]) -> None:
    """Record what goes through every `Tracking`.

    Args:
        module: That holds the class.
        patches: Where the hooks are kept.
        dialect: What its names mean.
        arguments: What the class is made with, in order; `project_name`, `experiment_name` and `config` among it.
    """
    recordings: dict[int, Recording] = {}

    def begin(function: Callable[..., Any], tracking: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        function(*args, **kwargs)
        with harmless("Tracking"):
            told = dict(zip(arguments, args, strict=False)) | kwargs
            place: dict[str, Any] = {"project": str(told["project_name"]), "name": str(told["experiment_name"])}
            recording = recordings[id(tracking)] = Recording(**place, dialect=dialect)
            if told.get("config"):
                recording.run.params(told["config"])

    def log(function: Callable[..., Any], tracking: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = function(*args, **kwargs)
        with harmless("Tracking.log"):
            if (recording := recordings.get(id(tracking))) is not None:
                told = dict(zip(("data", "step"), args, strict=False)) | kwargs
                recording.run.log(_numbers(told["data"]), step=told["step"])
        return answer

    def end(function: Callable[..., Any], tracking: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with harmless("Tracking"):
            if (recording := recordings.pop(id(tracking), None)) is not None:
                end_step()
                recording.finish()
        return function(*args, **kwargs)

    patches.wrap(module, "Tracking.__init__", begin)
    patches.wrap(module, "Tracking.log", log)
    for name in ("finish", "__del__"):
        if name in vars(module.Tracking):
            patches.wrap(module, f"Tracking.{name}", end)


def _numbers(data: Any) -> dict[str, Any]:
    return {name: value for name, value in data.items() if not isinstance(value, (str, bool)) and value is not None}
