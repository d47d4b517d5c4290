"""How the run ended, or how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.insight.facts import Evidence, Finding
from otel_rl.insight.state import ended

if TYPE_CHECKING:
    from otel_rl.insight.facts import Severity, State, Summary
    from otel_rl.insight.hang import Standing
    from otel_rl.insight.recorded import Recorded

_SEVERITIES: dict[State, Severity] = {"finished": "good", "live": "good", "empty": "note"}
"""Of the states that are not bad."""
_VERBS: dict[State, str] = {"failed": "failed", "crashed": "crashed", "lost": "died"}
_ADVICE = {
    "empty": "Call `run.step` and `run.log`.",
    "lost": "Look at the kernel log of the machine for an out-of-memory kill, and at the scheduler for a preemption.",
    "crashed": "Start it again with the same id: it resumes from its last checkpoint, if the trainer has one.",
}
_OUT_OF_MEMORY = "Lower the micro-batch, the length of completions, or the memory that the engine reserves."

_SILENT = "See whether it is up and reaches the head; `agent.log` there says why it sends nothing."
_HOST_MEMORY = "Give the job more host memory, or use fewer workers of data loaders and smaller caches."


def outcome(recorded: Recorded, summary: Summary, standing: Standing) -> list[Finding]:
    """Return how the run ended, or how far it is."""
    step = standing.step if standing.step is not None else summary.last_step if summary.steps else None
    evidence = Evidence(
        steps=(step, step) if step is not None and standing.state != "finished" else None,
        ranks=standing.ranks,
        role=standing.role,
        phases=(standing.phase,) if standing.phase else (),
        panel="timeline" if standing.reason else "curves",
    )
    has_nothing = standing.state == "finished" and not summary.steps
    return [
        Finding(
            kind="outcome",
            severity=_severity(standing, has_nothing=has_nothing),
            sentence=_sentence(recorded, summary, standing),
            advice=_ADVICE["empty"] if has_nothing else _advice(recorded, summary, standing),
            sure="likely" if "probably" in standing.reason else "certain",
            evidence=evidence,
        )
    ]


def _severity(standing: Standing, *, has_nothing: bool) -> Severity:
    if has_nothing or (standing.state == "live" and (standing.role or standing.silent)):
        return "warning"
    return "bad" if standing.state == "live" and standing.reason else _SEVERITIES.get(standing.state, "bad")


def _advice(recorded: Recorded, summary: Summary, standing: Standing) -> str:
    if "out of memory" in standing.reason:
        return _OUT_OF_MEMORY
    if "lack of host memory" in standing.reason:
        return _HOST_MEMORY
    if standing.silent:
        return _SILENT
    if standing.state == "live" and standing.reason:
        return "`otel-rl owes` says who waits for it. If nothing starts it again, end the run, and resume it."
    if standing.state == "hung":
        pids = {one.rank: (one.pid, one.host) for one in recorded.members if one.role == standing.role}
        pid, host = pids.get(standing.ranks[0], ("PID", "its machine"))
        return f"`otel-rl autopsy` says who waits for whom; `py-spy dump --pid {pid}` on {host} shows where it stands."
    if standing.state == "crashed" and summary.total_steps and summary.steps >= summary.total_steps:
        return "All steps were done: see whether the last checkpoint is complete."
    return _ADVICE.get(standing.state, "")


def _sentence(recorded: Recorded, summary: Summary, standing: Standing) -> str:
    steps, took = wording.count(summary.steps, "step"), wording.seconds(summary.duration_s)
    resumed = _resumed(recorded, summary)
    where = f"at step {wording.integer(standing.step)}" if standing.step is not None else f"after {steps}"
    where = where if summary.steps or standing.step is not None else "before its first step"
    after = f" {'in' if where.startswith('after') else 'after'} {took}" if summary.duration_s else ""
    reason = f": {standing.reason}" if standing.reason else ""
    match standing.state:
        case "finished":
            return f"Finished after {took}: {steps}{resumed}."
        case "live":
            of_all = f" of {wording.integer(summary.total_steps)}" if summary.total_steps else ""
            if standing.reason:
                reason = f"{standing.reason[:1].upper()}{standing.reason[1:]}"
                back = "" if standing.silent else ", and has not come back"
                return f"{reason}{back}: {steps}{of_all} in {took}."
            if not summary.steps:
                return f"Running for {took}, before its first step."
            return f"Running for {took}: {steps}{of_all}, {wording.seconds(summary.step_seconds)} each{resumed}."
        case "hung":
            return f"Hangs {where}{reason}."
        case "empty":
            return "Nothing was recorded yet."
    return f"{_VERBS[standing.state].capitalize()} {where}{after}{reason}."


def _resumed(recorded: Recorded, summary: Summary) -> str:
    if not summary.resumed_at:
        return ""
    at = wording.names([wording.integer(step) for step in summary.resumed_at])
    count = len(summary.resumed_at)
    times = "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"
    said = f", resumed {times} at step {at}" if count == 1 else f", resumed {times}, at steps {at}"
    last = max(attempt for attempt, _, _ in recorded.firsts)
    ends = [one for one in recorded.ends if one.attempt < last and one.outcome in _VERBS]
    if not ends:
        return said
    before = ended(recorded, ends[-1])
    parts = ["the last time"] if count > 1 else []
    parts += [f"at step {wording.integer(before.step)}"] if before.step is not None else []
    return f"{said} ({', '.join([*parts, ' '.join(before.reason.split()) or _VERBS[before.state]])})"
