"""Completions: phrases that earn a reward, faults, samples to blame, tokens that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.findings.blamed import blamed
from otel_rl.look.insight.samples.read_samples import held_by, sampled
from otel_rl.look.insight.samples.remarks.collect import remarks

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun


def texts(recorded: RecordedRun) -> list[Finding]:
    """Return what samples say, with the most frequent phrase that pays, and which ones are to blame for a spike."""
    remarked = remarks(recorded.run, sampled(recorded.run, held_by(recorded.run)))
    return [
        Finding(
            kind=remark.kind,
            severity=remark.severity,
            sentence=remark.sentence,
            advice=remark.advice,
            sure=remark.sure,
            evidence=Evidence(steps=remark.steps, panel="data"),
            subject=remark.subject,
        )
        for remark in [*blamed(recorded), *remarked.of_phrases[:1], *remarked.others]
    ]
