"""The present of a run: what its agents wrote last, as one, and the state that follows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl.recorder.archive.marks import Marks
from otel_rl.recorder.archive.now import DeviceNow, ExporterNow, ProcessNow, Progress, Wait, progress_of, read_now
from otel_rl.recorder.archive.reports import extent_of, signs_of
from otel_rl.recorder.facts.outcome import RunExtent, outcome_sentence
from otel_rl.recorder.facts.signs import Stalled
from otel_rl.recorder.facts.standing import Lack, standing
from otel_rl.recorder.facts.states import State, goes_on

if TYPE_CHECKING:
    from otel_rl.recorder.archive.runs import Place
    from otel_rl.recorder.facts.standing import Standing


class RunPresent(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is now, or as it was when its agents wrote last."""

    path: str  # the run directory
    id: str  # identity of the run
    project: str  # its project
    name: str  # its display name
    marks: Marks = Marks()  # the tags and notes that people gave it
    state: State = "empty"  # its state
    reason: str = ""  # why it is in this state; of a live one, what it lacks; empty if there is nothing to say
    lacks: Lack = ""  # what it lacks while it goes on, as `otel_rl.recorder.facts.standing.Standing` has it
    sentence: str = ""  # how it ended, or how far it is
    at: int = 0  # the time that it is shown for: the present while its agents live, else when one wrote last
    last_unix_nano: int = 0  # its last sign of life; 0 if there is none
    started_unix_nano: int | None = None  # when its first process started; `None` if unknown
    progress: Progress = Progress()  # how far it is
    processes: tuple[ProcessNow, ...] = ()  # the processes of the last attempt: the ranks, then others
    exporters: tuple[ExporterNow, ...] = ()  # its exporters
    devices: tuple[DeviceNow, ...] = ()  # the GPUs and hosts of all machines
    waits: tuple[Wait, ...] = ()  # what its processes wait for
    stalled: tuple[Stalled, ...] = ()  # the processes that do not go on
    lost: dict[str, int] = {}  # number of losses, by reason
    warnings: tuple[str, ...] = ()  # what its agents had to warn about
    metrics: str | None = None  # URL of the metrics endpoint; `None` without one
    is_complete: bool = True  # if false, its agents wrote nothing, and the archive or the rows have to be read

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come."""
        return not goes_on(self.state)

    @property
    def title(self) -> str:
        """Its project and its name."""
        return f"{self.project} · {self.name}" if self.name else self.project


def present_of(place: Place, at: int | None = None) -> RunPresent:
    """Return the present of a run from what its agents wrote last; `at` is the time in Unix nanoseconds."""
    at = time.time_ns() if at is None else at
    nows = read_now(place.path)
    if not nows:
        return _without_agent(place, at)
    signs, extent = signs_of(place.path, nows, at), extent_of(nows)
    attempt = max((process.attempt for now in nows for process in now.processes), default=0)
    processes = [process for now in nows for process in now.processes if process.attempt == attempt]
    processes.sort(key=lambda process: (process.role, process.rank))
    return replace(
        stands(place, standing(signs, at), extent, at),
        progress=replace(progress_of(nows), total_steps=extent.total_steps),
        processes=tuple(processes),
        exporters=tuple(exporter for now in nows for exporter in now.exporters),
        devices=tuple(device for now in nows for device in now.devices),
        waits=tuple(wait for now in nows for wait in now.waits),
        stalled=tuple(stalled for now in nows for stalled in now.stalled),
        lost={reason: count for now in nows for reason, count in now.lost.items()},
        warnings=tuple(warning for now in nows for warning in now.warnings),
        metrics=nows[0].metrics,
    )


def stands(place: Place, state: Standing, extent: RunExtent, at: int) -> RunPresent:
    """Return a run with its state and how far it is at a time in Unix nanoseconds."""
    return RunPresent(
        path=str(place.path),
        id=place.id,
        project=place.project,
        name=place.name,
        marks=place.marks,
        state=state.state,
        reason=state.reason,
        lacks=state.lacks,
        sentence=outcome_sentence(state, extent, at),
        at=at if goes_on(state.state) else extent.last_unix_nano or at,
        last_unix_nano=extent.last_unix_nano,
        started_unix_nano=extent.started_unix_nano or None,
    )


def _without_agent(place: Place, at: int) -> RunPresent:
    """Return the present of a run of which no agent has written anything: it has just started, or has rows alone."""
    signs = signs_of(place.path, (), at)
    state, began = standing(signs, at), 0 if signs.start is None else signs.start.time_unix_nano
    last = max([began, *(end.time_unix_nano for end in signs.ends)])
    return replace(stands(place, state, RunExtent(began, last), at), is_complete=state.lacks == "report")
