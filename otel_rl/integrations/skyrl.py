"""SkyRL: the values of its `Tracking`, and its timers.

They were tested, called as the trainer calls them. The trainer needs GPUs, and was not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.integrations import tracked
from otel_rl.integrations.timers import Timers, attribute_of_self

if TYPE_CHECKING:
    from otel_rl.integrations.patches import Patches

_ARGUMENTS = ("project_name", "experiment_name", "backend", "config", "tags")
_TIMERS = Timers("step", attribute_of_self("global_step"))


def patch_tracking(module: Any, patches: Patches) -> None:
    """Record the values of every `Tracking`."""
    tracked.patch_tracking(module, patches, dialect="skyrl", arguments=_ARGUMENTS)


def patch_timer(module: Any, patches: Patches) -> None:
    """Record the sections of `Timer` as steps and phases, in coroutines too."""
    _TIMERS.hook_timer(patches, module, "Timer", lambda timer: str(timer.message), awaited=True)
