"""The waits that can never end, while the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight.facts import Evidence, Finding
from otel_rl.insight.owed import in_vain

if TYPE_CHECKING:
    from otel_rl.insight.hang import Standing
    from otel_rl.insight.recorded import Recorded

_MOST = 3


def waits(recorded: Recorded, standing: Standing) -> list[Finding]:
    """Return what can never end, in the words of `otel-rl owes`."""
    if standing.state not in ("live", "hung"):
        return []
    sentences = in_vain([wait for now in recorded.now for wait in now.waits])
    return [
        Finding(
            kind="wait",
            severity="bad",
            sentence=f"{sentence[:1].upper()}{sentence[1:]}",
            advice="`otel-rl owes` shows all waits; `otel-rl autopsy` shows the stacks.",
            evidence=Evidence(panel="timeline"),
        )
        for sentence in sentences[:_MOST]
    ]
