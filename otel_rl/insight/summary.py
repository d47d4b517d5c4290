"""The summary of a run: what it is, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight.facts import Summary
from otel_rl.semconv.total_steps import total_steps

if TYPE_CHECKING:
    from otel_rl.insight.hang import Standing
    from otel_rl.insight.recorded import Recorded
    from otel_rl.insight.shifts import Shift

_RECENT_STEPS = 50


def summarized(recorded: Recorded, standing: Standing, changes: list[Shift]) -> Summary:
    """Return the summary; `changes` are those of the time of a step."""
    place, steps, members = recorded.place, recorded.steps, recorded.members
    last = max((one.attempt for one in members), default=0)
    ranks = [one for one in members if not one.role and one.attempt == last]
    times = recorded.step_times
    since = max(changes[-1].step, times.steps[-_RECENT_STEPS:][0]) if changes else None
    recent = times.tail(_RECENT_STEPS) if since is None else times.between(int(since), int(times.steps[-1]))
    began = [one.started_unix_nano for one in members] + [one.started_unix_nano or 0 for one in recorded.now]
    started = min((one for one in began if one), default=0)
    ended = _last(recorded, standing)
    total = total_steps(recorded.parameters)
    started = started or (ended if steps else 0)
    firsts = recorded.firsts if last else []
    return Summary(
        id=place.id or place.path.name,
        project=place.project,
        name=place.name,
        state=standing.state,
        reason=standing.reason,
        started_unix_nano=started,
        last_unix_nano=ended,
        duration_s=max(0, ended - started) / 1e9,
        first_step=steps.first if steps else -1,
        last_step=steps.last if steps else -1,
        steps=steps.number if steps else 0,
        total_steps=total if total is not None and (not steps or total >= steps.last) else None,
        ranks=max([len({one.rank for one in ranks}), *(one.world_size for one in ranks)], default=0),
        hosts=recorded.hosts,
        attempts=last + 1 if members else 0,
        resumed_at=tuple(first for attempt, first, _ in firsts if attempt > firsts[0][0]),
        step_seconds=recent.median,
        step_seconds_before=changes[-1].before if changes else None,
    )


def _last(recorded: Recorded, standing: Standing) -> int:
    """Return when the run ended, or recorded something last; for a live one, now."""
    if standing.state in ("live", "hung"):
        return recorded.at_unix_nano
    if standing.state in ("finished", "failed", "crashed") and recorded.ends:
        return recorded.ends[-1].time_unix_nano
    found = [one.time_unix_nano for one in recorded.ends] + [one.ended_unix_nano or 0 for one in recorded.members]
    found += [one.last_unix_nano for now in recorded.now for one in now.processes]
    found += [recorded.steps.last_unix_nano] if recorded.steps else []
    return max([*found, *(one.started_unix_nano for one in recorded.members)], default=0)
