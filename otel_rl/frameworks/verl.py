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
from otel_rl.frameworks import tracked
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.rollouts import RolloutBatch, ScoredRollout, record, run_with_texts
from otel_rl.frameworks.timers import Timers, attribute_of_self
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.frameworks.patches import Patches

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


def patch_advantages(module: Any, patches: Patches) -> None:
    """Record what the driver holds of each trajectory once it has computed the advantages."""

    def computed(_: object, given: dict[str, Any]) -> None:
        batch = given["return"]
        if (run := run_with_texts()) is not None and "responses" in batch.batch:
            trainer = _TIMERS.look(lambda variables: variables["self"])
            record(run, trainer.global_steps, _batch(batch).rollouts(trainer.tokenizer))

    patches.observe(module, "compute_advantage", (), computed)


def patch_dumps(module: Any, patches: Patches) -> None:
    """Record the texts that the trainer with a TransferQueue reads from it, if it dumps them."""

    def dumped(trainer: Any, given: dict[str, Any]) -> None:
        run = run_with_texts()
        if run is not None and given["dump_path"] == trainer.config.trainer.rollout_data_dir:
            lines = zip(given["inputs"], given["outputs"], given["scores"], strict=True)
            record(
                run,
                trainer.global_steps,
                [ScoredRollout(prompt=a, completion=b, group="", reward=c) for a, b, c in lines],
            )

    names = ("inputs", "outputs", "gts", "scores", "reward_extra_infos_dict", "dump_path")
    patches.observe(module, "PPOTrainer._dump_generations", names, dumped)


def _batch(data: Any) -> RolloutBatch:
    """Return the trajectories of a `DataProto`. In bypass mode, the trainer computes no log-probabilities."""
    tensors, columns = data.batch, data.non_tensor_batch
    engine, trainer = (tensors.get(name) for name in ("rollout_log_probs", "old_log_probs"))
    return RolloutBatch(
        tokens=tensors["input_ids"],
        attention=tensors["attention_mask"],
        since=tensors["response_mask"],
        written=tensors["response_mask"],
        mask=tensors["response_mask"],
        advantages=tensors["advantages"],
        logprobs=engine,
        trainer_logprobs=None if trainer is engine else trainer,
        rewards=tensors["token_level_scores"].sum(1).tolist(),
        groups=columns["uid"],
        components={name: columns[name] for name in data.meta_info.get("reward_extra_keys", ()) if name in columns},
    )


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
