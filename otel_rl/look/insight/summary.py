"""The summary of a run: what it is, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.facts import Summary

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.shifts import Shift
    from otel_rl.recorder.facts.outcome import RunExtent
    from otel_rl.recorder.facts.standing import Standing


def summarized(recorded: RecordedRun, standing: Standing, extent: RunExtent, change: Shift | None) -> Summary:
    """Return the summary; `change` is the one of the time of a step that lasts."""
    place, members = recorded.place, recorded.members
    last = max((member.attempt for member in members), default=0)
    ranks = [member for member in members if not member.role and member.attempt == last]
    return Summary(
        id=place.id or place.path.name,
        project=place.project,
        name=place.name,
        state=standing.state,
        reason=standing.reason,
        started_unix_nano=extent.started_unix_nano,
        last_unix_nano=extent.last_unix_nano,
        duration_s=extent.seconds(standing, recorded.at_unix_nano),
        first_step=-1 if extent.first_step is None else extent.first_step,
        last_step=-1 if extent.last_step is None else extent.last_step,
        steps=extent.steps,
        total_steps=extent.total_steps,
        ranks=max([len({rank.rank for rank in ranks}), *(rank.world_size for rank in ranks)], default=0),
        hosts=extent.hosts,
        attempts=last + 1 if members else 0,
        resumed_at=extent.resumed_at,
        recent_step_seconds=extent.recent_step_seconds,
        step_seconds_before=None if change is None else change.before,
        changed_at_step=None if change is None else change.step,
    )
