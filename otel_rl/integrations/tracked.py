"""Trainers that log through a class `Tracking`: verl and SkyRL."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.integrations.recording import Recordings, numbers
from otel_rl.integrations.timers import end_step
from otel_rl.trainer.current import recorder_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.integrations.patches import Patches


logger = logging.getLogger("otel_rl")
_FIX = "use `with otel_rl.current().step(n)` and `.phase(name)` in the training loop"


def patch_tracking(module: Any, patches: Patches, *, dialect: str, arguments: Sequence[str]) -> None:
    """Record the values of every `Tracking`.

    Args:
        module: The module of the class.
        patches: Gets the hooks.
        dialect: The dialect of its names.
        arguments: The arguments of the class, in order; `project_name`, `experiment_name` and `config` among them.
    """
    recordings = Recordings()
    first: dict[str, object] = {}

    def begin(tracking: Any, given: dict[str, Any]) -> None:
        project, name = str(given["project_name"]), str(given["experiment_name"])
        recordings.begin(tracking, given.get("config"), project=project, name=name, dialect=dialect)

    def log(tracking: Any, given: dict[str, Any]) -> None:
        recordings.log(tracking, numbers(given["data"]), given["step"])
        run, known = otel_rl.current(), first.setdefault(dialect, given["step"])
        if known not in (None, given["step"]) and run is not None and recorder_of(run).last_begun < 0:
            first[dialect] = None
            logger.warning("this trainer of %s has no timers: its steps and phases are not recorded; %s", dialect, _FIX)

    def end(tracking: Any, given: dict[str, Any]) -> None:
        if recordings.holds(tracking):
            end_step()
            recordings.finish(tracking)

    patches.observe(module, "Tracking.__init__", arguments, begin, what="Tracking")
    patches.observe(module, "Tracking.log", ("data", "step"), log, what="Tracking.log")
    for name in ("finish", "__del__"):
        if name in vars(module.Tracking):
            patches.observe(module, f"Tracking.{name}", (), end, what="Tracking", first=True)
