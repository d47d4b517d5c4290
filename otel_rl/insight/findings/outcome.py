"""How the run ended, or how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.insight.facts import Evidence, Finding

if TYPE_CHECKING:
    from otel_rl.insight.facts import Summary
    from otel_rl.insight.hang import Standing

_ADVICE = {
    "hung": "Look at the stacks of the ranks that hang, for example with `py-spy dump --pid PID` on their machine.",
    "lost": "Look at the kernel log of the machine for an out-of-memory kill, and at the scheduler for a preemption.",
    "crashed": "Start it again with the same id: it resumes from its last checkpoint, if the trainer has one.",
}
_OUT_OF_MEMORY = "Lower the micro-batch, the length of completions, or the memory that the engine reserves."


def outcome(summary: Summary, standing: Standing) -> list[Finding]:
    """Return how the run ended, or how far it is."""
    step = standing.step if standing.step is not None else summary.last_step if summary.steps else None
    evidence = Evidence(
        steps=(step, step) if step is not None and standing.state != "finished" else None,
        ranks=standing.ranks,
        role=standing.role,
        phases=(standing.phase,) if standing.phase else (),
        panel="timeline" if standing.reason else "curves",
    )
    is_bad = standing.state in ("hung", "failed", "crashed", "lost")
    advice = _ADVICE.get(standing.state, "") if standing.state != "empty" else "Call `run.step` and `run.log`."
    if "out of memory" in standing.reason:
        advice = _OUT_OF_MEMORY
    return [
        Finding(
            kind="outcome",
            severity="bad" if is_bad else "note" if standing.state == "empty" else "good",
            sentence=_sentence(summary, standing),
            advice=advice,
            sure="likely" if "probably" in standing.reason else "certain",
            evidence=evidence,
        )
    ]


def _sentence(summary: Summary, standing: Standing) -> str:
    steps, took = wording.count(summary.steps, "step"), wording.seconds(summary.duration_s)
    resumed = _resumed(summary)
    where = f"at step {wording.integer(standing.step)}" if standing.step is not None else f"after {steps}"
    where = where if summary.steps or standing.step is not None else "before its first step"
    after = f" {'in' if where.startswith('after') else 'after'} {took}" if summary.duration_s else ""
    reason = f": {standing.reason}" if standing.reason else ""
    match standing.state:
        case "finished":
            return f"Finished after {took}: {steps}{resumed}."
        case "live":
            of_all = f" of {wording.integer(summary.total_steps)}" if summary.total_steps else ""
            if not summary.steps:
                return f"Running for {took}, before its first step."
            return f"Running for {took}: {steps}{of_all}, {wording.seconds(summary.step_seconds)} each{resumed}."
        case "hung":
            return f"Hangs {where}{reason}."
        case "failed":
            return f"Failed {where}{after}{reason}."
        case "crashed":
            return f"Crashed {where}{after}{reason}."
        case "lost":
            return f"Died {where}{after}{reason}."
        case "empty":
            return "Nothing was recorded yet."


def _resumed(summary: Summary) -> str:
    if not summary.resumed_at:
        return ""
    at = wording.names([wording.integer(step) for step in summary.resumed_at])
    count = len(summary.resumed_at)
    times = "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"
    return f", resumed {times} at step {at}" if count == 1 else f", resumed {times}, at steps {at}"
