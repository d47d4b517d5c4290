"""Phrases in what the policy wrote that earn a reward: perhaps a trick that the verifier pays for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight.facts import Evidence, Finding
from otel_rl.insight.samples.conclude import sentence_of
from otel_rl.insight.samples.phrases import phrases
from otel_rl.insight.samples.read import held_by, read_samples

if TYPE_CHECKING:
    from otel_rl.insight.recorded import Recorded


def texts(recorded: Recorded) -> list[Finding]:
    """Return the most frequent phrase that earns a reward, if completions were recorded."""
    held = held_by(recorded.run)
    found = phrases(read_samples(recorded.run, held.names, held.spread()))
    return [
        Finding(
            kind="learning",
            severity="warning",
            sentence=sentence_of(one),
            advice=f'Read otel-rl samples --contains "{one.text}". If no answer needs it, correct the reward.',
            sure="possible",
            evidence=Evidence(steps=(one.since, held.steps[-1]), panel="data"),
        )
        for one in found[:1]
    ]
