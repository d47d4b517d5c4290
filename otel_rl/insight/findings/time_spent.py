"""Where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.insight.facts import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.insight.facts import PhaseShare

_MOST_NAMED = 4
_LEAST = 0.01
_MUCH_OUTSIDE = 0.25


def time_spent(shares: Sequence[PhaseShare]) -> list[Finding]:
    """Return the largest phases with their shares; it is worth a warning if much time is in no phase."""
    phases = [one for one in shares if one.name]
    if not phases:
        return []
    named = [one for one in phases if one.share >= _LEAST][:_MOST_NAMED] or phases[:1]
    outside = next((one.share for one in shares if not one.name), 0.0)
    rest = 1 - outside - sum(one.share for one in named)
    parts = [f"{one.name} {wording.percent(one.share)}" for one in named]
    parts += [f"other phases {wording.percent(rest)}"] if rest >= _LEAST else []
    parts += [f"not in any phase {wording.percent(outside)}"] if outside >= _LEAST else []
    much = outside >= _MUCH_OUTSIDE
    return [
        Finding(
            kind="time",
            severity="note",
            sentence=f"{', '.join(parts)}.",
            advice="Mark the rest of the step with `run.phase`, so that its time has a name." if much else "",
            evidence=Evidence(phases=tuple(one.name for one in named), panel="phases"),
        )
    ]
