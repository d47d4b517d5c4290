"""verl: what its `Tracking` gets, its timers, and the states of its workers.

    otel-rl run -- python -m verl.trainer.main_ppo …

or, in the trainer's process before verl's trainer is imported, `otel_rl.integrations.instrument.instrument("verl")`.
verl's own backends stay as they are. Rows have verl's names at verl's steps; the configuration is hyper-parameters.
`marked_timer("step", …)` begins a step, whose number is the trainer's `global_steps` and which lasts until the next
one, so that `testing` is in it; what else is timed are phases: `gen`, `reward`, `old_log_prob`, `adv`, `update_actor` …

Workers and inference servers tell RL-Insight what they are in (`actor_update`, `vllm_generate`): each is a span with
its lane, RL-Insight installed or not. They are other processes, which join the run as roles where `OTEL_RL_RUN_ID` is
set, and `OTEL_RL_PROJECT` and `OTEL_RL_NAME` say what verl's `trainer.project_name` and `experiment_name` do.

`main_ppo` runs the trainer in a Ray actor, which must have the variables that `otel-rl run` sets: a Ray that the driver
starts on this machine hands them on, elsewhere they belong into `runtime_env`. The trainer itself needs GPUs and was
not run; its tracking and its timers were, called as it calls them.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.integrations import tracked
from otel_rl.integrations.patches import harmless
from otel_rl.integrations.timers import Timers, attribute_of_self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.integrations.patches import Patches

logger = logging.getLogger(__name__)
_WHICH = ("OTEL_RL_RUN_ID", "OTEL_RL_PROJECT", "OTEL_RL_NAME")
"""What says where the trainer records: its run directory has all three in its path."""
_ARGUMENTS = ("project_name", "experiment_name", "default_backend", "config")
_TIMERS = Timers("step", attribute_of_self("global_steps"))
_ROLES = {"rank": "worker", "replica": "rollout"}
"""The role of a process by the kind of lane that its states are in."""


def patch_tracking(module: Any, patches: Patches) -> None:
    """Record what goes through every `Tracking`, and what RL-Insight is told."""
    tracked.patch_tracking(module, patches, dialect="verl", arguments=_ARGUMENTS)
    _patch_states(module, patches)


def patch_timers(module: Any, patches: Patches) -> None:
    """Make steps and phases of what `marked_timer` and `simple_timer` time."""

    def timed(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _TIMERS.around(str(kwargs.get("name", args[0] if args else "")), function(*args, **kwargs))

    for name in ("marked_timer", "simple_timer"):
        if hasattr(module, name):
            patches.wrap(module, name, timed)


def _patch_states(module: Any, patches: Patches) -> None:
    """Make spans of the states that workers and inference servers tell RL-Insight, whether it is switched on or not."""

    def state(function: Callable[..., Any], cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(kwargs.get("state_name", args[0] if args else ""))
        return _in_state(name, str(kwargs.get("state_lane_id", "")), function(*args, **kwargs))

    if hasattr(module, "RLInsightLogger"):
        patches.wrap(module, "RLInsightLogger.trace_state", state)


@contextmanager
def _in_state(name: str, lane: str, theirs: Any) -> Iterator[None]:
    span: Any = nullcontext()
    with harmless("trace_state"):
        if otel_rl.current() is None:
            _join(_ROLES.get(lane.partition("_")[0], "worker"))
        if (run := otel_rl.current()) is not None:
            span = run.tracer_provider.get_tracer("verl").start_as_current_span(name, attributes={"verl.lane": lane})
    with span, theirs:
        yield


@cache
def _join(role: str) -> None:
    """Join the trainer's run from another process, where the environment says which one it is; try it once.

    States are told in the middle of serving requests: what failed is not tried again at each of them.
    """
    if all(os.environ.get(variable) for variable in _WHICH):
        try:
            otel_rl.init(role=role, dialect="verl", quiet=True)
        except Exception:
            logger.warning("%s is not recorded", role, exc_info=True)
