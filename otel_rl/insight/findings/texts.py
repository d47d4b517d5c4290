"""Completions: phrases that earn a reward, faults, samples to blame, tokens that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight.facts import Evidence, Finding
from otel_rl.insight.findings.blamed import blamed
from otel_rl.insight.samples.read import held_by, sampled
from otel_rl.insight.samples.remarks import remarks

if TYPE_CHECKING:
    from otel_rl.insight.recorded import Recorded


def texts(recorded: Recorded) -> list[Finding]:
    """Return what samples say, with the most frequent phrase that pays, and which ones are to blame for a spike."""
    said = remarks(recorded.run, sampled(recorded.run, held_by(recorded.run)))
    return [
        Finding(
            kind=one.kind,
            severity=one.severity,
            sentence=one.sentence,
            advice=one.advice,
            sure=one.sure,
            evidence=Evidence(steps=one.steps, panel="data"),
        )
        for one in [*blamed(recorded), *said.of_phrases[:1], *said.others]
    ]
