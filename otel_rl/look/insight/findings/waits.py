"""The waits that can never end, while the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.owed import in_vain
from otel_rl.look.insight.troubles import RUN
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.states import goes_on

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.archive.now import Wait
    from otel_rl.recorder.facts.standing import Standing

_MOST = 3


def waits(recorded: RecordedRun, standing: Standing) -> list[Finding]:
    """Return what can never end, in the words of `otel-rl why`."""
    if not goes_on(standing.state):
        return []
    of_culprits: dict[tuple[str, ...], list[Wait]] = {}
    for wait in (wait for now in recorded.now for wait in now.waits if wait.cause):
        of_culprits.setdefault(wait.culprits, []).append(wait)
    findings = [
        Finding(
            kind="wait",
            severity="bad",
            sentence=wording.capitalized(sentence),
            advice=f"{recorded.command('why')} shows all waits; {recorded.command('autopsy')} shows the stacks.",
            evidence=Evidence(panel="timeline"),
            since_unix_nano=min(wait.since_unix_nano for wait in waits),
            subject=f"process:{' '.join(culprits)}",
            covers=(RUN,) if standing.state == "hung" else (),
        )
        for culprits, waits in of_culprits.items()
        for sentence in in_vain(waits)
    ]
    return findings[:_MOST]
