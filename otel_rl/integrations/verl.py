"""verl: the values of its `Tracking`, its timers, and the states of its workers and inference servers.

Each state is a span with its lane. Workers are other processes: they join the run as roles if the environment says
which run it is.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.errors.sinks import log_of
from otel_rl.integrations import tracked
from otel_rl.integrations.patches import harmless
from otel_rl.integrations.timers import Timers, attribute_of_self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.integrations.patches import Patches

logger = log_of(__name__)
_WHICH = ("OTEL_RL_RUN_ID", "OTEL_RL_PROJECT", "OTEL_RL_NAME")
"""The variables that identify the run; the path of its directory has all three."""
_STATES = (
    "verl: states of workers and inference servers are not recorded; to record them, set OTEL_RL_RUN_ID, and set "
    "OTEL_RL_PROJECT and OTEL_RL_NAME to verl's trainer.project_name and trainer.experiment_name"
)
_TRAINER = "verl.trainer.ppo.ray_trainer"
_ARGUMENTS = ("project_name", "experiment_name", "default_backend", "config")
_TIMERS = Timers("step", attribute_of_self("global_steps"), before=("start_profile",))
_ROLES = {"rank": "worker", "replica": "rollout"}
"""The role of a process, by the kind of its lane."""


def patch_tracking(module: Any, patches: Patches) -> None:
    """Record the values of every `Tracking`, and the states for RL-Insight."""
    tracked.patch_tracking(module, patches, dialect="verl", arguments=_ARGUMENTS)
    _patch_states(module, patches)


def patch_timers(module: Any, patches: Patches) -> None:
    """Record the sections of `marked_timer` and `simple_timer` as steps and phases."""
    for name in ("marked_timer", "simple_timer"):
        if hasattr(module, name):
            _TIMERS.hook_context(patches, module, name)


def _patch_states(module: Any, patches: Patches) -> None:
    """Record the states that workers and inference servers report to RL-Insight as spans, even if it is off."""

    def state(function: Callable[..., Any], cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(kwargs.get("state_name", args[0] if args else ""))
        return _in_state(name, str(kwargs.get("state_lane_id", "")), function(*args, **kwargs))

    def warn(*_: Any) -> None:
        if _TRAINER in sys.modules and not all(os.environ.get(variable) for variable in _WHICH):
            logger.warning(_STATES)

    if hasattr(module, "RLInsightLogger"):
        patches.wrap(module, "RLInsightLogger.trace_state", state)
        patches.observe(module, "Tracking.__init__", (), warn, what="Tracking")


@contextmanager
def _in_state(name: str, lane: str, state: Any) -> Iterator[None]:
    span: Any = nullcontext()
    with harmless("trace_state"):
        if otel_rl.current() is None:
            _join(_ROLES.get(lane.partition("_")[0], "worker"))
        if (run := otel_rl.current()) is not None:
            span = run.tracer_provider.get_tracer("verl").start_as_current_span(name, attributes={"verl.lane": lane})
    with span, state:
        yield


@cache
def _join(role: str) -> None:
    """Join the trainer's run from another process, if the environment identifies the run; try it once.

    States are reported while requests are served, so a failure is not retried at each state.
    """
    if all(os.environ.get(variable) for variable in _WHICH):
        try:
            otel_rl.init(role=role, dialect="verl", quiet=True)
        except Exception:
            logger.warning("%s is not recorded", role, exc_info=True)
