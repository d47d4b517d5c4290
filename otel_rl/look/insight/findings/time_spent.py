"""Where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.facts import PhaseShare

_MOST_NAMED = 4
_LEAST = 0.01
_MUCH_OUTSIDE = 0.25


def time_spent(shares: Sequence[PhaseShare]) -> list[Finding]:
    """Return the largest phases with their shares; it is worth a warning if much time is in no phase."""
    phases = [share for share in shares if share.name]
    if not phases:
        return []
    named = [phase for phase in phases if phase.share >= _LEAST][:_MOST_NAMED] or phases[:1]
    outside = next((share.share for share in shares if not share.name), 0.0)
    rest = 1 - outside - sum(phase.share for phase in named)
    parts = [f"{phase.name} {wording.percent(phase.share)}" for phase in named]
    parts += [f"other phases {wording.percent(rest)}"] if rest >= _LEAST else []
    parts += [f"not in any phase {wording.percent(outside)}"] if outside >= _LEAST else []
    much = outside >= _MUCH_OUTSIDE
    return [
        Finding(
            kind="time",
            severity="note",
            sentence=f"{', '.join(parts)}.",
            advice="Mark the rest of the step with `run.phase`, so that its time has a name." if much else "",
            evidence=Evidence(phases=tuple(phase.name for phase in named), panel="phases"),
        )
    ]
