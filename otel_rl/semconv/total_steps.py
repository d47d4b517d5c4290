"""The number of steps that a run is going to have, from its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENDINGS = (
    "total_training_steps",  # verl
    "max_num_steps",  # NeMo-RL
    "num_rollout",  # slime
    "max_train_steps",
    "num_train_steps",
    "max_training_steps",
    "num_training_steps",
    "training_steps",
    "total_steps",
    "max_steps",  # TRL, ROLL, Tunix
    "total_iterations",
    "max_iterations",
    "num_iterations",
    "num_steps",
    "train_steps",
)
"""Last components of the names of such parameters; the first one that a run has wins."""
_ALONE = "steps"
"""A name that says so only if nothing is before it: `eval.steps` is something else."""


def total_steps(parameters: Mapping[str, object]) -> int | None:
    """Return the number of steps that parameters announce; `None` if they do not."""
    for ending in _ENDINGS:
        for name, value in parameters.items():
            last = name.replace("/", ".").rpartition(".")[2]
            if last == ending and _is_count(value):
                return int(value)  # type: ignore[call-overload, no-any-return]
    value = parameters.get(_ALONE)
    return int(value) if _is_count(value) else None  # type: ignore[call-overload]


def _is_count(value: object) -> bool:
    """Return whether it is a positive whole number; frameworks use -1 and 0 for "no limit"."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 and value == int(value)
