"""verl: the values of its `Tracking`, its timers, and the states of its workers.

    otel-rl run -- python -m verl.trainer.main_ppo …

Or call `otel_rl.integrations.instrument.instrument("verl")` in the trainer's process before verl's trainer is imported.
verl's own backends are unchanged. Rows have verl's names at verl's steps. The configuration is hyper-parameters.
`marked_timer("start_profile", …)` or, without it, `marked_timer("step", …)` begins a step. Its number is the trainer's
`global_steps`. A step lasts until the next one begins, so it includes `testing`. Other timers are phases: `gen`,
`reward`, `old_log_prob`, `adv`, `update_actor` …

Workers and inference servers report their states to RL-Insight (`actor_update`, `vllm_generate`). Each state is a span
with its lane, whether RL-Insight is installed or not. They are other processes. They join the run as roles if
`OTEL_RL_RUN_ID` is set, and `OTEL_RL_PROJECT` and `OTEL_RL_NAME` have the values of verl's `trainer.project_name` and
`experiment_name`. If a variable is not set, one line says so.

`main_ppo` runs the trainer in a Ray actor, which needs the variables that `otel-rl run` sets. A Ray that the driver
starts on its own machine passes them on. Elsewhere, put them into `runtime_env`. `RayPPOTrainer.fit` was run on a CPU
with stand-ins for its GPU workers. The SFT trainer has no timers: it gets rows, but no steps or phases.
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
