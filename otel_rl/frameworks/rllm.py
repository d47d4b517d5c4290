"""rLLM: the values of its `Tracking`, its timers, and the generation and validation of its trainer."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from otel_rl.frameworks import tracked
from otel_rl.frameworks.recording import TIMED
from otel_rl.frameworks.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from otel_rl.frameworks.patches import Patches

_ARGUMENTS = ("project_name", "experiment_name", "default_backend", "config")


def patch_tracking(module: Any, patches: Patches) -> None:
    """Record the values of every `Tracking`."""
    tracked.patch_tracking(module, patches, dialect="rllm", arguments=_ARGUMENTS)


def patch_timers(module: Any, patches: Patches) -> None:
    """Record the sections of `simple_timer` as steps and phases, of the trainer and of its backends."""
    _TIMERS.hook_context(patches, module, "simple_timer")


def patch_trainer(module: Any, patches: Patches) -> None:
    """Record validations as phases, and end the last step where it began: in the task of the training."""

    def fit(function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _until_the_end(function(*args, **kwargs))

    patches.wrap(module, "UnifiedTrainer.fit_async", fit)
    patches.wrap(module, "UnifiedTrainer._validate_async", partial(_call, "validate"))


def patch_workflows(module: Any, patches: Patches) -> None:
    """Record batches of workflows as phases."""
    patches.wrap(module, "UnifiedWorkflowEngine.execute_tasks", partial(_call, "generate"))


def patch_agents(module: Any, patches: Patches) -> None:
    """Record batches of agents as phases."""
    patches.wrap(module, "AgentFlowEngine.execute_tasks", partial(_call, "generate"))


def _call(phase: str, function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _awaited(phase, function(*args, **kwargs))


async def _until_the_end(training: Awaitable[Any]) -> Any:
    try:
        return await training
    finally:
        # Here, not at exit: OpenTelemetry logs an error if a span ends in another task than it began in (test_rllm.py).
        TIMED.end(sys.exc_info()[1])


async def _awaited(phase: str, coroutine: Awaitable[Any]) -> Any:
    with _TIMERS.timed(phase):
        return await coroutine


def _number_of_step(variables: Mapping[str, Any]) -> object:
    return getattr(variables.get("trainer_state"), "global_step", None)


_TIMERS = Timers("step", _number_of_step, before=None)
