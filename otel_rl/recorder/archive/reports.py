"""The state of a run and how far it is, from what its agents wrote to `now.json`, by the rules of the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.export import Ended
from otel_rl.recorder.archive.files import END_FILE, ROWS_FILE
from otel_rl.recorder.archive.now import progress_of
from otel_rl.recorder.archive.runs import machines
from otel_rl.recorder.directory.last_start import last_start
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.facts.outcome import RunExtent, plausible_total
from otel_rl.recorder.facts.signs import AgentReport, AttemptEnd, KnownProcess, RunSigns
from otel_rl.recorder.facts.standing import down_before, hosts_of, lives, of_last_attempt
from otel_rl.recorder.files.atomic_files import read_shown_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_rl.recorder.archive.now import Now, ProcessNow


def report_of(now: Now) -> AgentReport:
    """Return what an agent reported last."""
    return AgentReport(
        time_unix_nano=now.time_unix_nano,
        has_ended=now.state == "ended",
        processes=tuple(map(known_process, now.processes)),
        stalls=now.stalled,
    )


def reports_of(nows: Iterable[Now]) -> list[AgentReport]:
    """Return what agents reported last, in the same order."""
    return [report_of(now) for now in nows]


def signs_of(run: Path, nows: Sequence[Now], at: int) -> RunSigns:
    """Return the signs of a run, from what its agents reported last and its processes noted in its directory.

    Of a run without reports, whether it has steps, and how it ended if its rows are plain, follow from its files.
    """
    if not nows:
        end = read_shown_json(run / END_FILE, Ended, run)
        ends = () if end is None else (AttemptEnd(end.attempt, end.outcome, end.error, end.time_unix_nano),)
        has_steps = (run / ROWS_FILE).exists() or bool(machines(run / ARCHIVE))
        return RunSigns(ends=ends, has_steps=has_steps, start=last_start(run))
    agents = reports_of(nows)
    processes = of_last_attempt(agents)
    has_ended = bool(processes) and all(process.outcome is not None for process in processes)
    if processes and not has_ended and any(lives(agent, at) for agent in agents):
        return RunSigns(tuple(agents))  # the common case: what it knows needs no look at locks
    start = last_start(run, known=processes[0].attempt if has_ended else None)
    return RunSigns(tuple(agents), has_steps=any(now.progress.steps for now in nows), start=start)


def extent_of(nows: Sequence[Now]) -> RunExtent:
    """Return how far a run is, from what its agents reported last."""
    progress, agents = progress_of(nows), reports_of(nows)
    processes = of_last_attempt(agents)
    attempt = max((process.attempt for process in processes), default=0)
    last = max((process.last_unix_nano for agent in agents for process in agent.processes), default=0)
    return RunExtent(
        started_unix_nano=min((now.started_unix_nano for now in nows if now.started_unix_nano), default=0),
        last_unix_nano=last or nows[0].time_unix_nano,
        first_step=progress.first_step,
        last_step=progress.last_step,
        steps=progress.steps,
        total_steps=plausible_total(progress.total_steps, progress.last_step),
        resumed_at=progress.resumed_at,
        recent_step_seconds=progress.recent_step_seconds,
        hosts=hosts_of(processes),
        before=down_before((now.before for now in nows if now.before is not None), attempt),
    )


def known_process(process: ProcessNow) -> KnownProcess:
    """Return what is known of a process."""
    return KnownProcess(
        attempt=process.attempt,
        role=process.role,
        rank=process.rank,
        host=process.host,
        last_unix_nano=process.ended_unix_nano or process.last_unix_nano,
        outcome=process.outcome,
        error=process.error,
        cause=process.cause,
        step=process.ended_step if process.outcome else process.step,
        phase=process.ended_phase if process.outcome else process.phases[-1].name if process.phases else "",
        down_order=process.down_order,
    )
