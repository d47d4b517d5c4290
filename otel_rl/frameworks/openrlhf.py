"""OpenRLHF: the values of its loggers, and methods of its trainer as phases.

The loggers were tested. The trainer needs GPUs and flash-attn, and was not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks.recording import Recordings
from otel_rl.frameworks.timers import Timers
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.frameworks.patches import Patches

logger = log_of("otel_rl")

_LOGGERS = ("WandbLogger", "TensorboardLogger")
_NOTHING = (
    "OpenRLHF logs nothing without a logger, so nothing is recorded; give it --logger.wandb.key or "
    "--logger.tensorboard_dir"
)
_FIRST = ("generate_samples", "make_experience_batch")
"""The methods with which a step can begin. The asynchronous trainer does not generate."""
_PHASES = (
    "SamplesGenerator.generate_samples",
    "RemoteExperienceMaker.make_experience_batch",
    "BasePPOTrainer.ppo_train",
    "BasePPOTrainer.broadcast_to_vllm",
    "BasePPOTrainer.save_logs_and_checkpoints",
    "BasePPOTrainer.evaluate",
)


def patch(module: Any, patches: Patches) -> None:
    """Record the values of the first logger; the others get the same values."""
    recordings = Recordings()

    def begin(logger: Any, given: dict[str, Any]) -> None:
        if not recordings:
            arguments, named = given["args"], given["args"].logger.wandb
            place = {"project": str(named.project or ""), "name": str(named.run_name or "")}
            recordings.begin(logger, vars(arguments), **place, dialect="openrlhf")

    def log(prefix: str) -> Callable[[Any, dict[str, Any]], None]:
        def record(logger: Any, given: dict[str, Any]) -> None:
            logged = {f"{prefix}/{name}": value for name, value in given["logs_dict"].items()}
            logged.pop(f"{prefix}/generated_samples", None)
            recordings.log(logger, logged, given["global_step"])

        return record

    def end(logger: Any, given: dict[str, Any]) -> None:
        recordings.finish(logger)

    for name in _LOGGERS:
        patches.observe(module, f"{name}.__init__", ("args",), begin, what="logger")
        for part in ("train", "eval"):
            names = ("global_step", "logs_dict")
            patches.observe(module, f"{name}.log_{part}", names, log(part), what="log", first=True)
        patches.observe(module, f"{name}.close", (), end, first=True)


def patch_trainer(module: Any, patches: Patches) -> None:
    """Record the trainer's methods as steps and phases."""

    def logged(trainer: Any, given: dict[str, Any]) -> None:
        if otel_rl.current() is None and not warned:
            warned.append(_NOTHING)
            logger.warning(_NOTHING)

    warned: list[str] = []
    for path in _PHASES:
        _TIMERS.hook_method(patches, module, path)
    patches.observe(module, "BasePPOTrainer.save_logs_and_checkpoints", (), logged, first=True)


def _number_of_step(variables: Mapping[str, Any]) -> int | None:
    done = variables.get("global_step")
    return done + 1 if isinstance(done, int) else None


_TIMERS = Timers("step", _number_of_step, before=_FIRST)
