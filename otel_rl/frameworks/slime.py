"""slime: what its trackers get, the timers of its trainers, and its rollouts.

The driver begins the run. slime's Ray actors join it, as the roles `rollout`, `actor` and `critic`, through variables
that slime gives to each of them.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import TIMED, Recordings
from otel_rl.frameworks.timers import Timers
from otel_rl.recorder.settings.settings import INSTRUMENT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from otel_rl.frameworks.patches import Patches

_RECORDINGS = Recordings()
_PROCESS = object()
"""The key of the one recording of this process."""
_PASSED = (INSTRUMENT_VARIABLE, "PYTHONPATH")
"""The variables of `otel-rl run`, which a Ray cluster that exists already does not have."""
_LAST = "update_weights"
"""The last work of a trainer in a step. Then it waits for rollouts until it is shut down, or for the next step."""


def patch_environment(module: Any, patches: Patches) -> None:
    """Give slime's actors the variables with which they join the run."""

    def add(function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        variables = function(*args, **kwargs)
        with harmless("add_default_ray_env_vars"):
            if (run := otel_rl.current()) is not None:
                own = {name: os.environ[name] for name in _PASSED if name in os.environ}
                return {**own, **variables, **run.environment()}
        return variables

    patches.wrap(module, "add_default_ray_env_vars", add)


def patch_tracking(module: Any, patches: Patches) -> None:
    """Record what trackers get, at the step of the axis that slime gives with it; with or without a tracker."""
    driver: list[bool] = []

    def begin(_: object, given: dict[str, Any]) -> None:
        args = given["args"]
        if not given.get("primary", True):
            _join(given.get("role") or "rollout")
        elif not _RECORDINGS:
            driver.append(True)
            named = {"project": args.wandb_project or args.tb_project_name or ""}
            named["name"] = args.wandb_group or args.tb_experiment_name or ""
            _RECORDINGS.begin(_PROCESS, vars(args), **named, dialect="slime")

    def log(_: object, given: dict[str, Any]) -> None:
        values = dict(given["metrics"])
        step = values.pop(given["step_key"])
        _RECORDINGS.log(_PROCESS, values, step)

    def end(_: object, given: dict[str, Any]) -> None:
        TIMED.end()
        if driver:  # an actor has nothing to wait for: rows are complete when all have moved on
            _RECORDINGS.finish(_PROCESS)

    patches.observe(module, "init_tracking", ("args", "primary"), begin)
    patches.observe(module, "log", ("args", "metrics", "step_key"), log)
    patches.observe(module, "finish_tracking", (), end, first=True)


def patch_trainer(module: Any, patches: Patches) -> None:
    """Join the run from each trainer."""
    patches.observe(module, "TrainRayActor.init", ("args", "role"), lambda _, given: _join(given["role"]), first=True)


def patch_timer(module: Any, patches: Patches) -> None:
    """Record the blocks and functions that are timed; `train_wait`, which is neither, has the other timers in it."""
    timers = Timers("", _number_of_step, before=None, module=module.__name__)

    def call(function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _timed(timers, str(kwargs.get("name", args[0] if args else "")), function(*args, **kwargs))

    patches.wrap(module, "Timer.context", call)


@contextmanager
def _timed(timers: Timers, name: str, own: AbstractContextManager[None]) -> Iterator[None]:
    with timers.timed(name), own:
        yield
    if name == _LAST:
        TIMED.end()


def patch_rollout(module: Any, patches: Patches) -> None:
    """Record generations and evaluations as phases."""
    timers = Timers("", _number_of_step, before=None)

    def call(function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with timers.timed("evaluate" if kwargs.get("evaluation") else "generate"):
            return function(*args, **kwargs)

    patches.wrap(module, "call_rollout_fn", call)


def _join(role: str) -> None:
    """Join the driver's run, if the environment says which run it is."""
    if not _RECORDINGS and "OTEL_RL_RUN_ID" in os.environ:
        _RECORDINGS.begin(_PROCESS, role=role, dialect="slime", quiet=True)


def _number_of_step(variables: Mapping[str, Any]) -> int | None:
    """Return the number of the rollout, unless that has ended: the asynchronous loop evaluates during the next one."""
    number = variables.get("rollout_id")
    return number if isinstance(number, int) and number >= (TIMED.number or 0) else None
