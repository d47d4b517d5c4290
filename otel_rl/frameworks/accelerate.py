"""Accelerate: a tracker, and hooks into `Accelerator` for those that have none.

    accelerator = Accelerator(log_with=OtelRlTracker())

Accelerate has no phases. One line says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accelerate.tracking import GeneralTracker

from otel_rl.frameworks.recording import Recording, Recordings
from otel_rl.frameworks.tracked import warn_without_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.frameworks.patches import Patches
    from otel_rl.recorder.trainer.run import Run


class OtelRlTracker(GeneralTracker):  # type: ignore[misc] # mypy does not read Accelerate's types
    """A tracker for Accelerate. It records on the main process, as Accelerate's trackers do.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    name = "otel_rl"
    requires_logging_directory = False

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._recording: Recording | None = None

    @property
    def tracker(self) -> Run | None:
        """The run."""
        return None if self._recording is None else self._recording.run

    def start(self) -> None:
        """Begin to record into the current run, or into a new one."""
        self._recording = self._recording or Recording(self, **self._options)

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Record hyper-parameters."""
        self.start()
        if self.tracker is not None:
            self.tracker.params(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record the numbers among `values`."""
        self.start()
        if self._recording is not None:
            self._recording.log(values, step)
            warn_without_steps("accelerate", step)

    def finish(self) -> None:
        """End the run, if this object began it."""
        if self._recording is not None:
            self._recording.finish()
            self._recording = None


def patch(module: Any, patches: Patches) -> None:
    """Record what goes through every `Accelerator`."""
    recordings = Recordings()

    def begin(accelerator: Any, given: dict[str, Any]) -> None:
        if accelerator.is_main_process and not _has_tracker(accelerator):
            project = str(given.get("project_name", ""))
            of_trackers = (given.get("init_kwargs") or {}).values()
            name = next((str(options["name"]) for options in of_trackers if options.get("name")), "")
            recordings.begin(accelerator, given.get("config"), trainer=accelerator, project=project, name=name)

    def log(accelerator: Any, given: dict[str, Any]) -> None:
        recordings.log(accelerator, given["values"], given.get("step"))
        warn_without_steps("accelerate", given.get("step"))

    def end(accelerator: Any, given: dict[str, Any]) -> None:
        recordings.finish(accelerator)

    patches.observe(module, "Accelerator.init_trackers", ("project_name", "config", "init_kwargs"), begin)
    patches.observe(module, "Accelerator.log", ("values", "step"), log)
    patches.observe(module, "Accelerator.end_training", (), end, first=True)


def _has_tracker(accelerator: Any) -> bool:
    return any(isinstance(tracker, OtelRlTracker) for tracker in accelerator.trackers)
