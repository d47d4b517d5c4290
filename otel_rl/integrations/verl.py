"""verl: what its `Tracking` gets, and its timers.

    otel-rl run -- python -m verl.trainer.main_ppo …

or, in the trainer's process before verl's trainer is imported, `otel_rl.integrations.instrument.instrument("verl")`.
verl's own backends stay as they are. Rows have verl's names at verl's steps; the configuration is hyper-parameters.
`marked_timer("step", …)` begins a step, whose number is the trainer's `global_steps` and which lasts until the next
one, so that `testing` is in it; what else is timed are phases: `gen`, `reward`, `old_log_prob`, `adv`, `update_actor` …

`main_ppo` runs the trainer in a Ray actor, which must have the variables that `otel-rl run` sets: a Ray that the driver
starts on this machine hands them on, elsewhere they belong into `runtime_env`. The trainer itself needs GPUs and was
not run; its tracking and its timers were, called as it calls them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from otel_rl.integrations import tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.integrations.patches import Patches

_ARGUMENTS = ("project_name", "experiment_name", "default_backend", "config")


def patch_tracking(module: Any, patches: Patches) -> None:
    """Record what goes through every `Tracking`."""
    tracked.patch_tracking(module, patches, dialect="verl", arguments=_ARGUMENTS)


def patch_timers(module: Any, patches: Patches) -> None:
    """Make steps and phases of what `marked_timer` and `simple_timer` time."""

    def timed(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _recorded(str(kwargs.get("name", args[0] if args else "")), function(*args, **kwargs))

    for name in ("marked_timer", "simple_timer"):
        if hasattr(module, name):
            patches.wrap(module, name, timed)


@contextmanager
def _recorded(name: str, timer: Any) -> Iterator[Any]:
    with tracked.timed(name, "global_steps"), timer as value:
        yield value
