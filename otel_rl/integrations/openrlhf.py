"""OpenRLHF: what its loggers get, and what its trainer does.

    otel-rl run -- python -m openrlhf.cli.train_ppo_ray …

Rows have the names that its trackers get (`train/reward`, `eval/…`) at its global steps, its own timings
(`train/timing/*`) among them; its arguments are hyper-parameters. One of its loggers has to be switched on, for W&B or
TensorBoard: without one OpenRLHF logs nothing. A step begins with the generation of its samples and lasts until the
next one; its phases are methods of the trainer: `generate_samples`, `make_experience_batch`, `ppo_train`,
`broadcast_to_vllm`, `save_logs_and_checkpoints`, `evaluate`. The asynchronous trainer generates in an actor of its
own, so that its steps begin with the training.

The trainer needs GPUs and flash-attn and was not run; its loggers were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.integrations.patches import Patches, harmless
from otel_rl.integrations.recording import Recording
from otel_rl.integrations.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LOGGERS = ("WandbLogger", "TensorboardLogger")
_STEP = "step"
_FIRST = ("generate_samples", "make_experience_batch")
"""What a step may begin with: the asynchronous trainer does not generate."""
_PHASES = (
    "SamplesGenerator.generate_samples",
    "RemoteExperienceMaker.make_experience_batch",
    "BasePPOTrainer.ppo_train",
    "BasePPOTrainer.broadcast_to_vllm",
    "BasePPOTrainer.save_logs_and_checkpoints",
    "BasePPOTrainer.evaluate",
)


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


def patch_trainer(module: Any, patches: Patches) -> None:
    """Make steps and phases of the trainer's methods."""

    def timed(name: str) -> Callable[..., Any]:
        def call(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name in _FIRST:
                _TIMERS.begin(_STEP)
            with _TIMERS.timed(name):
                return function(*args, **kwargs)

        return call

    for path in _PHASES:
        patches.wrap(module, path, timed(path.partition(".")[2]))


def _number_of_step(variables: Mapping[str, Any]) -> int | None:
    done = variables.get("global_step")
    return done + 1 if isinstance(done, int) else None


_TIMERS = Timers(_STEP, _number_of_step)
