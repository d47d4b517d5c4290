"""All checks of `otel-rl doctor`, and what they found together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from otel_rl.autopsy.doctor import collector, directories, gpus, limits, packages, ports, recording, settings, trackers
from otel_rl.autopsy.doctor.check import NOT_CHECKED, Check, CheckedMachine, Subject, examine
from otel_rl.recorder.directory import directory

if TYPE_CHECKING:
    from collections.abc import Mapping

SUBJECTS = (
    Subject("settings", settings.settings),
    Subject("packages", packages.packages, 15.0),
    Subject("directory", directories.directory),
    Subject("ports", ports.ports, 12.0),
    Subject("gpus", gpus.gpus, 12.0),
    Subject("collector", collector.collector, 20.0),
    Subject("trackers", trackers.trackers, 30.0),
    Subject("permissions", limits.permissions),
    Subject("limits", limits.limits),
    Subject("clocks", recording.clocks),
    Subject("prometheus", ports.prometheus, 12.0),
    Subject("recording", recording.recording, 10.0),
)
"""The checks, in the order in which they are shown if they are equally bad; and their seconds."""


class Examination(msgspec.Struct, frozen=True):
    """The answers of all checks."""

    run: str  # the run directory that was looked at; empty without one
    checks: tuple[Check, ...]  # the answers, the worst first

    @property
    def exit_code(self) -> int:
        """0 if no check failed; 1 if one did; 2 if none did, and one could not be made."""
        if any(check.state == "failed" for check in self.checks):
            return 1
        return 2 if any(check.state == "skipped" and check.what.startswith(NOT_CHECKED) for check in self.checks) else 0


def examination(run: Path | None, environ: Mapping[str, str] = os.environ) -> Examination:
    """Examine this machine, as a run that starts here would find it, and a run if one is given."""
    chosen = settings.loaded(environ)
    place = Path(environ.get("OTEL_RL_DIR", "runs") if chosen is None else chosen.dir)
    machine = CheckedMachine(environ, chosen, place, None if run is None else directory.at(run))
    return Examination("" if run is None else str(run), tuple(examine(SUBJECTS, machine)))
