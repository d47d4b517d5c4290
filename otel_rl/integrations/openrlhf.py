"""OpenRLHF: what its loggers get.

    otel-rl run -- python -m openrlhf.cli.train_ppo_ray …

Rows have the names that its trackers get (`train/reward`, `eval/…`) at its global steps, its own timings
(`train/timing/*`) among them; its arguments are hyper-parameters. One of its loggers has to be switched on, for W&B or
TensorBoard: without one OpenRLHF logs nothing. It has no timers that could become spans. The trainer needs GPUs and was
not run; its loggers were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.integrations.patches import Patches, harmless
from otel_rl.integrations.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable

_LOGGERS = ("WandbLogger", "TensorboardLogger")


def patch(module: Any, patches: Patches) -> None:
    """Record what the first of its loggers gets; the others get the same."""
    recordings: dict[int, Recording] = {}

    def begin(function: Callable[..., Any], logger: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        function(*args, **kwargs)
        with harmless("logger"):
            if not recordings:
                told: Any = kwargs.get("args", args[0] if args else None)
                named = told.logger.wandb
                recording = recordings[id(logger)] = Recording(
                    project=str(named.project or ""), name=str(named.run_name or ""), dialect="openrlhf"
                )
                recording.run.params(vars(told))

    def log(prefix: str) -> Callable[..., Any]:
        def call(function: Callable[..., Any], logger: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with harmless("log"):
                if (recording := recordings.get(id(logger))) is not None:
                    told = dict(zip(("global_step", "logs_dict"), args, strict=False)) | kwargs
                    numbers = {n: v for n, v in told["logs_dict"].items() if n != "generated_samples" and v is not None}
                    values = {f"{prefix}/{name}": value for name, value in numbers.items()}
                    recording.run.log(values, step=told["global_step"])
            return function(*args, **kwargs)

        return call

    def end(function: Callable[..., Any], logger: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with harmless("close"):
            if (recording := recordings.pop(id(logger), None)) is not None:
                recording.finish()
        return function(*args, **kwargs)

    for name in _LOGGERS:
        patches.wrap(module, f"{name}.__init__", begin)
        patches.wrap(module, f"{name}.log_train", log("train"))
        patches.wrap(module, f"{name}.log_eval", log("eval"))
        patches.wrap(module, f"{name}.close", end)
