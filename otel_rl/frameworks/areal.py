"""AReaL: what its `StatsLogger` commits, and what its trainers time with `stats_tracker`.

Ranks that torchrun starts are ranks. With AReaL's single controller, the controller is the run's one process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.recording import Recordings
from otel_rl.frameworks.timers import Timers

if TYPE_CHECKING:
    from otel_rl.frameworks.patches import Patches

_TIMERS = Timers("", lambda variables: variables.get("global_step"), before=None)


def patch_logger(module: Any, patches: Patches) -> None:
    """Record what every `StatsLogger` commits, at the steps at which it does; on rank 0, as it does."""
    recordings = Recordings()

    def begin(logger: Any, given: dict[str, Any]) -> None:
        stats = given["config"].stats_logger
        named = {"project": stats.wandb.project or stats.experiment_name, "name": stats.wandb.name or stats.trial_name}
        recordings.begin(logger, given["config"], **named, dialect="areal")

    def commit(logger: Any, given: dict[str, Any]) -> None:
        if module.dist.is_initialized() and module.dist.get_rank() != 0:
            return
        data = given["data"] if isinstance(given["data"], list) else [given["data"]]
        # As AReaL does: several commits of one global step get steps of their own.
        first = max(given["global_step"], logger._last_commit_step + 1)
        for step, item in enumerate(data, first):
            values = {name: value for name, value in item.items() if not name.endswith("__count")}
            recordings.log(logger, values, step)

    patches.observe(module, "StatsLogger.__init__", ("config",), begin, what="StatsLogger")
    # Before the call, which moves `_last_commit_step`.
    patches.observe(module, "StatsLogger.commit", ("epoch", "step", "global_step", "data"), commit, first=True)
    patches.observe(module, "StatsLogger.close", (), lambda logger, _: recordings.finish(logger), first=True)


def patch_timings(module: Any, patches: Patches) -> None:
    """Record what trainers time as phases, and their loop as steps."""
    _TIMERS.hook_context(patches, module, "record_timing")
