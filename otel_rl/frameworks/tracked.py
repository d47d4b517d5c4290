"""Trainers that log through a class `Tracking`: verl and SkyRL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks.recording import Recordings
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.trainer.current import steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.frameworks.patches import Patches


logger = log_of("otel_rl")
_NO_TIMERS = (
    "this trainer of %s has no timers: its steps and phases are not recorded; add --instrument torch, or use "
    "`with otel_rl.current().step(n)` and `.phase(name)` in the training loop"
)
_first: dict[str, object] = {}
"""The first step that a framework logged at, by its name; `None` once the line has been logged."""


def warn_without_steps(framework: str, step: object) -> None:
    """Log one line if a framework logs at a second step, and no step has begun in its run."""
    run, first = otel_rl.current(), _first.setdefault(framework, step)
    if first not in (None, step) and run is not None and steps_of(run).last_begun < 0:
        _first[framework] = None
        logger.warning(_NO_TIMERS, framework)


def patch_tracking(module: Any, patches: Patches, *, dialect: str, arguments: Sequence[str]) -> None:
    """Record the values of every `Tracking`.

    Args:
        module: The module of the class.
        patches: Gets the hooks.
        dialect: The dialect of its names.
        arguments: The arguments of the class, in order; `project_name`, `experiment_name` and `config` among them.
    """
    recordings = Recordings()

    def begin(tracking: Any, given: dict[str, Any]) -> None:
        project, name = str(given["project_name"]), str(given["experiment_name"])
        recordings.begin(tracking, given.get("config"), project=project, name=name, dialect=dialect)

    def log(tracking: Any, given: dict[str, Any]) -> None:
        recordings.log(tracking, given["data"], given["step"])
        warn_without_steps(dialect, given["step"])

    def end(tracking: Any, given: dict[str, Any]) -> None:
        recordings.finish(tracking)

    patches.observe(module, "Tracking.__init__", arguments, begin, what="Tracking")
    patches.observe(module, "Tracking.log", ("data", "step"), log, what="Tracking.log")
    # verl ends its trackers in `__del__`, when the interpreter ends (tests/frameworks/test_verl.py).
    for name in ("finish", "__del__"):
        if name in vars(module.Tracking):
            patches.observe(module, f"Tracking.{name}", (), end, what="Tracking", first=True)
