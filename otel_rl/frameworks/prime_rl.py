"""prime-rl: what its monitors get, in the trainer and in the orchestrator, and the trainer's loop.

Both are processes of one run, if prime-rl's launcher has started them: it gives them one id. The trainer's processes
are ranks. The data loader and the monitors were tested; the trainer needs GPUs, and was not run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.recording import Recordings
from otel_rl.frameworks.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.frameworks.patches import Patches

_RECORDINGS = Recordings()
_TRAINERS = ("trainer", "sft")
"""The modules of the configurations of trainers; other components are roles."""
_ALSO_OF_TRAINERS = "time/"
"""The beginning of names that several components log at one step."""


def patch_monitors(module: Any, patches: Patches) -> None:
    """Record the metrics that monitors get, whether there are monitors or not; on rank 0, as monitors do."""
    roles: list[str] = []

    def begin(_: object, given: dict[str, Any]) -> None:
        config, wandb = given.get("run_config"), given.get("wandb")
        component = type(config).__module__.rpartition(".")[2]
        roles.append("" if config is None or component in _TRAINERS else component)
        name = getattr(wandb, "name", None) or os.environ.get("PRL_RUN_NAME") or "prime-rl"
        place = {"id": os.environ.get("PRL_RUN_ID", ""), "project": getattr(wandb, "project", "prime-rl"), "name": name}
        _RECORDINGS.begin(module, config, **place, role=roles[-1], dialect="prime_rl")

    def log(_: object, given: dict[str, Any]) -> None:
        if isinstance(given["data"], dict) and os.environ.get("RANK", os.environ.get("DP_RANK", "0")) == "0":
            values = {name: value for name, value in given["data"].items() if name != "step"}
            _RECORDINGS.log(module, _apart(values, roles[-1]), given["step"])

    def end(_: object, given: dict[str, Any]) -> None:
        if roles and not roles[-1]:  # rows of others are complete when the trainer has moved on: nothing to wait for
            _RECORDINGS.finish(module)

    patches.observe(module, "setup", (), begin, what="monitors")
    patches.observe(module, "log", ("data", "step"), log, what="monitors")
    patches.observe(module, "finalize", (), end, what="monitors", first=True)


def patch_data(module: Any, patches: Patches) -> None:
    """Record the wait for a batch, with which a step begins, and its load as phases."""
    for loader in ("DataLoader", "FakeDataLoader"):
        _TIMERS.hook_method(patches, module, f"{loader}.wait_for_batch")
        _TIMERS.hook_method(patches, module, f"{loader}.get_batch", "load_data")


def patch_model(module: Any, patches: Patches) -> None:
    """Record the forward pass of each micro-batch as a phase."""
    _TIMERS.hook_method(patches, module, "forward")


def patch_weights(module: Any, patches: Patches) -> None:
    """Record broadcasts of weights as phases."""
    for kind in ("FileSystem", "NCCL", "NIXL"):
        _TIMERS.hook_method(patches, module, f"{kind}WeightBroadcast.broadcast_weights")


def patch_checkpoints(module: Any, patches: Patches) -> None:
    """Record checkpoints as phases."""
    _TIMERS.hook_method(patches, module, "CheckpointManager.save", "save_ckpt")


def _apart(values: dict[str, Any], role: str) -> dict[str, Any]:
    """Return the values with the role before names under which the trainer logs other values at the same step."""
    return {f"{role}/{name}" if role and name.startswith(_ALSO_OF_TRAINERS) else name: values[name] for name in values}


def _number_of_step(variables: Mapping[str, Any]) -> object:
    return getattr(variables.get("progress"), "step", None)


_TIMERS = Timers("", _number_of_step, before=None)
