"""The present of a run: what its agents wrote last, as one, and the state that follows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl.archive.now import DeviceNow, ExporterNow, ProcessNow, Progress, read_now
from otel_rl.insight.facts import State
from otel_rl.insight.hang import going, lives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.now import Now
    from otel_rl.archive.runs import Place
    from otel_rl.export import Outcome

_WORST: tuple[Outcome, ...] = ("crashed", "lost", "failed", "finished")


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is now, or as it was when its agents wrote last.

    Attributes:
        path: The run directory.
        id: Identity of the run.
        project: Its project.
        name: Its display name.
        state: Its state.
        reason: Why it ended, or what speaks for the state; empty if there is nothing to say.
        at: The time that it is shown for: the present while its agents live, else when one wrote last.
        last_unix_nano: Its last sign of life; 0 if there is none.
        started_unix_nano: When its first process started; `None` if unknown.
        progress: How far it is.
        processes: The processes of the last attempt: the ranks, then others.
        exporters: Its exporters.
        devices: The GPUs and hosts of all machines.
        lost: Number of losses, by reason.
        warnings: What its agents had to warn about.
        metrics: URL of the metrics endpoint; `None` without one.
        is_complete: If false, its agents wrote nothing, and the archive or the rows have to be read.
    """

    path: str
    id: str
    project: str
    name: str
    state: State = "empty"
    reason: str = ""
    at: int = 0
    last_unix_nano: int = 0
    started_unix_nano: int | None = None
    progress: Progress = Progress()
    processes: tuple[ProcessNow, ...] = ()
    exporters: tuple[ExporterNow, ...] = ()
    devices: tuple[DeviceNow, ...] = ()
    lost: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    metrics: str | None = None
    is_complete: bool = True

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come."""
        return self.state not in ("live", "hung")

    @property
    def title(self) -> str:
        """Its project and its name."""
        return f"{self.project} · {self.name}" if self.name else self.project


def present_of(place: Place, at: int | None = None) -> Present:
    """Return the present of a run from what its agents wrote last; `at` is the time in Unix nanoseconds."""
    at = time.time_ns() if at is None else at
    nows = read_now(place.path)
    unknown = Present(
        path=str(place.path), id=place.id, project=place.project, name=place.name, at=at, is_complete=False
    )
    if not nows:
        return unknown
    progress = max((one.progress for one in nows), key=lambda one: (one.attempt, one.steps))
    attempt = max((process.attempt for one in nows for process in one.processes), default=0)
    processes = [process for one in nows for process in one.processes if process.attempt == attempt]
    processes.sort(key=lambda one: (one.role, one.rank))
    state, reason = _state(nows, processes, progress, at)
    written = nows[0].time_unix_nano
    last = max((one.last_unix_nano for one in processes), default=0) or written
    return replace(
        unknown,
        is_complete=True,
        state=state,
        reason=reason,
        at=at if any(lives(one, at) for one in nows) else written,
        last_unix_nano=last,
        started_unix_nano=min((one.started_unix_nano for one in nows if one.started_unix_nano), default=None),
        progress=progress,
        processes=tuple(processes),
        exporters=tuple(exporter for one in nows for exporter in one.exporters),
        devices=tuple(device for one in nows for device in one.devices),
        lost={reason: count for one in nows for reason, count in one.lost.items()},
        warnings=tuple(warning for one in nows for warning in one.warnings),
        metrics=nows[0].metrics,
    )


def _state(nows: Sequence[Now], processes: Sequence[ProcessNow], progress: Progress, at: int) -> tuple[State, str]:
    ended = [one for one in processes if one.outcome is not None]
    if processes and len(ended) == len(processes):
        worst = min(ended, key=lambda one: _WORST.index(one.outcome or "finished"))
        outcome = progress.outcome or worst.outcome or "finished"
        return outcome, progress.error or worst.error
    if not any(lives(one, at) for one in nows):
        if not processes:
            return "empty", "no process has recorded anything"
        return "lost", "its agent writes no more: the machine is gone, or the agent was killed"
    if not processes:
        return "live", "no process has recorded anything yet"
    stands = going(nows, at)
    return stands.state, stands.reason
