"""How the run ended, or how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.troubles import DIVERGED, MEMORY, NONFINITE, RUN, WEIGHTS, of_memory, of_process
from otel_rl.recorder.archive.autopsies import read_autopsies, telling
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.outcome import outcome_sentence

if TYPE_CHECKING:
    from otel_rl.look.insight.facts import Summary
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.archive.autopsies import Autopsy
    from otel_rl.recorder.facts.order import Severity
    from otel_rl.recorder.facts.outcome import RunExtent
    from otel_rl.recorder.facts.standing import Standing
    from otel_rl.recorder.facts.states import State

_SEVERITIES: dict[State, Severity] = {"finished": "good", "live": "good", "cancelled": "note", "empty": "note"}
"""Of the states that are not bad."""
_ADVICE = {
    "empty": "Call `run.step` and `run.log`.",
    "lost": "Look at the kernel log of the machine for an out-of-memory kill, and at the scheduler for a preemption.",
    "crashed": "Start it again with the same id: it resumes from its last checkpoint, if the trainer has one.",
}
_LACKS: dict[str, str] = {
    "agent": "A trainer starts it again with its next record; `agent.log` in the run's directory says why it ended.",
    "machine": "See whether it is up and reaches the head; `agent.log` there says why it sends nothing.",
    "process": "{why} says who waits for it. If nothing starts it again, end the run, and resume it.",
}
"""Of live runs, by what they lack."""
AUTOPSY = "Autopsy"
"""The first word of advice that is the verdict of an autopsy."""
_OUT_OF_MEMORY = "Lower the micro-batch, the length of completions, or the memory that the engine reserves."
_HOST_MEMORY = "Give the job more host memory, or use fewer workers of data loaders and smaller caches."


def outcome(recorded: RecordedRun, summary: Summary, standing: Standing, extent: RunExtent) -> list[Finding]:
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
            sentence=outcome_sentence(standing, extent, recorded.at_unix_nano),
            advice=_ADVICE["empty"] if has_nothing else _advice(recorded, summary, standing),
            evidence=evidence,
            since_unix_nano=summary.last_unix_nano,
            subject=RUN,
            covers=_covered(standing),
            needs=(NONFINITE, DIVERGED, MEMORY, WEIGHTS),
        )
    ]


def _covered(standing: Standing) -> tuple[str, ...]:
    """Return the subjects of findings about the deaths that the sentence says."""
    if standing.state == "hung":
        return ()
    subjects = (of_process, of_memory) if "memory" in standing.reason else (of_process,)
    return tuple(subject(standing.role, rank) for rank in standing.ranks for subject in subjects)


def _severity(standing: Standing, *, has_nothing: bool) -> Severity:
    if standing.state == "live" and standing.lacks == "process" and not standing.role:
        return "bad"
    is_warned = standing.reason and standing.lacks != "report" and standing.state in ("live", "finished")
    return "warning" if has_nothing or is_warned else _SEVERITIES.get(standing.state, "bad")


def _advice(recorded: RecordedRun, summary: Summary, standing: Standing) -> str:
    if "out of memory" in standing.reason:
        return _OUT_OF_MEMORY
    if "lack of host memory" in standing.reason:
        return _HOST_MEMORY
    if standing.lacks == "report" and standing.state == "lost":
        return f"Deliver it with: otel-rl agent {recorded.place.path} --once"
    if standing.lacks == "machine" or standing.state == "live":
        return _LACKS.get(standing.lacks, "").format(why=recorded.command("why"))
    if standing.state == "hung":
        made, why = last_autopsy(recorded), recorded.command("why")
        if made is not None and made.verdict.names_cause:
            said = f"{AUTOPSY} of {wording.clock(made.time_unix_nano)}: {made.verdict.sentence} {made.verdict.advice}"
            return f"{said.rstrip()} All of it: {why}."
        pids = {member.rank: (member.pid, member.host) for member in recorded.members if member.role == standing.role}
        pid, host = pids.get(standing.ranks[0], ("PID", "its machine"))
        return f"{why} says who is awaited; `py-spy dump --pid {pid}` on {host} shows where it stands."
    if standing.state == "crashed" and summary.total_steps and summary.steps >= summary.total_steps:
        return "All steps were done: see whether the last checkpoint is complete."
    return _ADVICE.get(standing.state, "")


def last_autopsy(recorded: RecordedRun) -> Autopsy | None:
    """Return the newest autopsy since the last step, or since the oldest wait that can never end; `None` without one.

    Of several, one that names a cause says more than one that does not.
    """
    waits = [wait.since_unix_nano for now in recorded.now for wait in now.waits if wait.cause]
    since = min([recorded.steps.last_unix_nano if recorded.steps else 0, *waits])
    return telling([autopsy for autopsy in read_autopsies(recorded.place.path) if autopsy.time_unix_nano >= since])
