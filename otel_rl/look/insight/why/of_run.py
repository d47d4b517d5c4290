"""Answers why a run is slow, stuck or dead: from its findings, its waits, its autopsies, and its slow steps."""

from __future__ import annotations

import shlex
import socket
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.insight.conclude import facts_of
from otel_rl.look.insight.findings.last_lines import PRINTED
from otel_rl.look.insight.findings.outcome import AUTOPSY, last_autopsy
from otel_rl.look.insight.owed import of_waits, owed, unusual_phases
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.state import standing
from otel_rl.look.insight.why.answer import Why
from otel_rl.look.insight.why.conclude import explained_steps
from otel_rl.look.insight.why.logged_times import slow_by_logged
from otel_rl.look.insight.why.slow_steps import slow_of, walls
from otel_rl.recorder.archive.now import read_now
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.states import goes_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.facts import Facts, Finding
    from otel_rl.look.insight.owed import Owed
    from otel_rl.look.insight.why.answer import ExplainedSteps
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.recorder.archive.autopsies import Autopsy
    from otel_rl.recorder.archive.now import Wait

_OF_STUCK, _OF_DEATH = ("outcome", "wait"), ("outcome", "wait", "hang", "memory")
_OF_TIME = ("hang", "change", "straggler", "engines")
"""Kinds of findings that say why a run is stuck, dead, or slow."""
_BAD_ENDS = ("failed", "cancelled", "crashed", "lost")
_WARM_UP_STEPS = 1
_VERDICT = 3
"""Findings that say how a run is that is well."""
_LONG_S, _LONG_STEPS = 60.0, 3.0
"""A wait of a run that goes on is named after so many seconds, and so many times the usual time of a step."""
_NS = 1_000_000_000


def why(
    run: RunReader, steps: tuple[int, int] | None = None, phase: str = "", *, at_unix_nano: int | None = None
) -> Why:
    """Return why a run is slow, stuck or dead.

    Args:
        run: The reader, of `otel_rl.open_run`.
        steps: The first and the last step; the answer is why these took their time.
        phase: The trainer's name of a phase; the answer is why this phase took its time.
        at_unix_nano: The time of the question; now by default.

    Raises:
        ValueError: The run has no such steps or phase.
    """
    at = time.time_ns() if at_unix_nano is None else at_unix_nano
    if steps is not None or phase:
        return _of_steps(run, explained_steps(run, steps, phase), at)
    facts = facts_of(run, at_unix_nano=at)
    is_over = facts.summary.state in _BAD_ENDS
    kinds = _OF_DEATH if is_over else _OF_STUCK
    outcome = [finding for finding in facts.findings if finding.kind == "outcome" and is_over]
    trouble = [finding for finding in facts.findings if finding.kind in kinds and _costs(finding)]
    if is_over or (trouble and goes_on(facts.summary.state)):
        printed = [finding for finding in facts.findings if finding.subject == PRINTED]
        findings = [*outcome, *(finding for finding in trouble if finding not in outcome), *printed]
        return _in_trouble(run, facts, findings, at, is_over=is_over)
    return _slow(run, facts, at)


def _of_steps(run: RunReader, explained: ExplainedSteps, at: int) -> Why:
    return Why(
        path=str(run.place.path),
        id=run.place.id,
        state=standing(RecordedRun(run, at)).state,
        sentences=(*explained.sentences, *explained.notes),
        steps=explained,
    )


def _in_trouble(run: RunReader, facts: Facts, findings: Sequence[Finding], at: int, *, is_over: bool) -> Why:
    """Return who is awaited, how processes died, and what the newest autopsy says; without one, how to make one."""
    waits = owed(run.place, at)
    waits = waits if is_over else _saying(waits, _bearable(waits))
    made = last_autopsy(RecordedRun(run, at))
    autopsy = None if made is None else msgspec.structs.replace(made, groups=())
    text = () if autopsy is None else (_of_autopsy(autopsy),)
    return Why(
        path=str(run.place.path),
        id=run.place.id,
        state=facts.summary.state,
        sentences=(
            *(finding.sentence for finding in findings),
            *((*waits.verdicts, *waits.sentences) if waits.waits else ()),
            *text,
        ),
        advice=() if is_over or autopsy is not None else tuple(_how_to_look(run)),
        findings=tuple(map(_without_itself, findings)),
        owed=waits,
        autopsy=autopsy,
    )


def _slow(run: RunReader, facts: Facts, at: int) -> Why:
    """Return what became slow and which steps were slow, without the first one; of a run that is well, the verdict."""
    known = walls(run)
    warm = known[_WARM_UP_STEPS:]
    slow: list[Finding] = []
    explained, advice = None, ["No step stands out. To explain one: otel-rl why --steps STEP"]
    try:
        if not known or {*warm} & {*slow_of(known)}:
            explained, advice = explained_steps(run, (warm[0].step, warm[-1].step) if warm else None), []
    except ValueError as error:
        slow = slow_by_logged(RecordedRun(run, at))
        advice = [f"Steps cannot be explained: {error}."] if facts.summary.steps and not slow else []
    # Trouble of any kind comes first: a run can be fast and diverge.
    findings = [each for each in facts.findings if _costs(each) or (each.kind in _OF_TIME and each.severity == "note")]
    findings = findings if explained is not None or any(map(_costs, findings)) else [*facts.findings[:_VERDICT]]
    findings += slow
    unusual = unusual_phases(present_of(run.place, at)) if goes_on(facts.summary.state) else []
    made = last_autopsy(RecordedRun(run, at)) if unusual else None
    made = made if made is not None and made.verdict.names_cause else None
    if unusual:  # nothing that is well stands above it, and the steps before do not explain it
        findings, advice = [each for each in findings if _costs(each)], [] if made is not None else _how_to_look(run)
    waits = owed(run.place, at) if facts.summary.state == "live" else None
    long = [] if waits is None else [wait for wait in _bearable(waits) if _is_long(wait, facts, at)]
    waits = _saying(waits, long) if waits is not None and long else None
    of_steps = () if explained is None else (*explained.sentences, *explained.notes)
    return Why(
        path=str(run.place.path),
        id=run.place.id,
        state=facts.summary.state,
        sentences=(
            *unusual,
            *([] if made is None else [_of_autopsy(made)]),
            *(finding.sentence for finding in findings),
            *(waits.sentences if waits else ()),
            *of_steps,
        ),
        advice=(*(unusual if made is None else ()), *advice),
        findings=tuple(findings),
        owed=waits,
        autopsy=None if made is None else msgspec.structs.replace(made, groups=()),
        steps=explained,
    )


def _of_autopsy(autopsy: Autopsy) -> str:
    verdict = autopsy.verdict
    sure = " (possible)" if verdict.sure == "possible" else ""
    return f"Autopsy of {wording.clock(autopsy.time_unix_nano)}: {verdict.sentence}{sure}"


def _costs(finding: Finding) -> bool:
    return finding.severity in ("bad", "warning")


def _without_itself(finding: Finding) -> Finding:
    """Return a finding whose advice is not in this answer anyway, and does not lead to it."""
    texts = [] if finding.advice.startswith(AUTOPSY) else finding.advice.split(". ")
    advice = ". ".join(text for text in texts if not text.startswith("`otel-rl why"))
    return msgspec.structs.replace(finding, advice=advice)


def _bearable(waits: Owed) -> list[Wait]:
    """Return the waits that can end; findings name the others."""
    return [wait for wait in waits.waits if not wait.cause]


def _saying(waits: Owed, named: Sequence[Wait]) -> Owed:
    """Return waits with sentences about some of them alone: what else is known is in the findings."""
    return msgspec.structs.replace(waits, verdicts=(), sentences=tuple(of_waits(named)))


def _is_long(wait: Wait, facts: Facts, at: int) -> bool:
    usual = facts.summary.recent_step_seconds or 0.0
    return at - wait.since_unix_nano > max(_LONG_S, _LONG_STEPS * usual) * _NS


def _how_to_look(run: RunReader) -> list[str]:
    """Return the command that makes an autopsy, and the machines to run it on, if this is none of them."""
    processes = [process for now in read_now(run.place.path) for process in now.processes if process.outcome is None]
    hosts = list(dict.fromkeys(process.host for process in processes))
    where = "" if socket.gethostname() in hosts else f" on {wording.names(hosts)}"
    return [f"Look at the stacks{where}: otel-rl autopsy {shlex.quote(str(run.place.path))}"] if hosts else []
