"""Separation of the W&B run of otel-rl from the run of the trainer."""

from __future__ import annotations

import os
import re
import sys

from otel_rl.recorder.errors.sinks import shortened

_OWN_ID = "WANDB_RUN_ID"
_REPLACING = "WANDB_SWEEP_ID", "WANDB_LAUNCH"
"""Variables with which W&B ignores another id, project and entity than those of the trainer's run."""
_OF_OWN_RUN = (
    "WANDB_SERVICE",  # it dies with the trainer, and the last rows with it
    *_REPLACING,
    *("WANDB_SWEEP_PARAM_PATH", "WANDB_LAUNCH_CONFIG_PATH", "WANDB_FORK_FROM", "WANDB_RESUME_FROM"),
)


def forget_own_run() -> bool:
    """Remove what makes W&B continue the trainer's run from the environment of an agent; return whether it was there.

    Raises:
        ValueError: This is the process of the trainer, where it has to stay.
    """
    is_there = any(os.environ.get(name) for name in (_OWN_ID, *_REPLACING))
    if "wandb" not in sys.modules:
        for name in _OF_OWN_RUN:
            os.environ.pop(name, None)
    elif any(os.environ.get(name) for name in _REPLACING):
        raise ValueError(
            "in a sweep, W&B would write into the trainer's own run: name the exporter 'wandb', so that it runs in the "
            "agent, or give {'wandb': {'attach': True}}"
        )
    return is_there


def run_id(id_: str) -> str:
    """Return the id of a run in W&B; different ids stay different, and differ from that of the trainer's own run."""
    if id_ == os.environ.get(_OWN_ID):  # which W&B leaves there, so that the next exporter sees it too
        id_ = f"{id_}-otel-rl"
    return shortened(re.sub(r"[:;,#?/'\\%\s]", "-", id_), 64, of=id_)
