"""The state of a run, and why: live, hung, how it ended, or empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from otel_rl import semconv
from otel_rl.insight import wording
from otel_rl.insight.hang import Standing, going, lives

if TYPE_CHECKING:
    from otel_rl.insight.facts import State
    from otel_rl.insight.recorded import End, Happening, Recorded

_NS = 1_000_000_000
_OUT_OF_MEMORY = ("OutOfMemoryError", "CUDA out of memory", "HIP out of memory", "RESOURCE_EXHAUSTED", "MemoryError")

_KILLED = {
    "oom_kill": "was killed by the kernel for lack of host memory",
    "exec": "started another program in its place",
    "slurm_time_limit": "was killed by Slurm at the time limit of the job",
    "slurm": "was killed by Slurm, which canceled or preempted the job,",
}
"""The verb of a sentence about a death, by its cause."""


def standing(recorded: Recorded) -> Standing:
    """Return the state of a run."""
    last = max((one.attempt for one in recorded.members), default=0)
    ends = [one for one in recorded.ends if one.attempt >= last]
    if ends:
        return ended(recorded, ends[-1])
    if any(lives(one, recorded.at_unix_nano) for one in recorded.now):
        return going(recorded.now, recorded.at_unix_nano)
    if recorded.steps is None and not recorded.members:
        return Standing("empty")
    return Standing("lost", _silence(recorded))


def ended(recorded: Recorded, end: End) -> Standing:
    """Return how an attempt ended, and the process that went down first."""
    state = cast("State", end.outcome)
    if state == "finished":
        return Standing(state)
    downs = [
        one
        for one in recorded.events
        if one.name in (semconv.EVENT_PROCESS_FAILED, semconv.EVENT_PROCESS_LOST)
        and _is_of_attempt(recorded, one, end.attempt)
    ]
    downs.sort(key=lambda one: int(one.attributes.get(semconv.PROCESS_DOWN_ORDER, 0)))
    if not downs:
        return Standing(state, end.error)
    first = downs[0]
    phase = str(first.attributes.get(semconv.PHASE, "")) or _open_phase(recorded, first)
    ranks = tuple(dict.fromkeys(one.rank for one in downs if one.rank is not None and one.role == first.role))
    others = len(downs) - 1
    after = f", then {wording.count(others, 'other')}" if others else ""
    reason = f"{_who(recorded, first)} {_what(recorded, first)}{_inside(phase)}{after}"
    return Standing(state, reason, first.step, ranks, first.role, phase)


def _is_of_attempt(recorded: Recorded, event: Happening, attempt: int) -> bool:
    """Return whether a process of the event's rank and role was in the attempt at that time."""
    return any(
        one.attempt == attempt and (one.rank, one.role) == (event.rank, event.role)
        for one in recorded.members
        if one.started_unix_nano <= event.time_unix_nano
    )


def _who(recorded: Recorded, event: Happening) -> str:
    return recorded.rank_text(event.rank or 0, event.role, event.host)


def _what(recorded: Recorded, event: Happening) -> str:
    if event.name == semconv.EVENT_PROCESS_LOST:
        cause = str(event.attributes.get(semconv.PROCESS_CAUSE, ""))
        if cause in _KILLED:
            return _KILLED[cause]
        grows = any(
            one.rank == event.rank and str(one.attributes.get(semconv.MEMORY_OF, "")).startswith("host")
            for one in recorded.events_of(semconv.EVENT_MEMORY_GROWING)
        )
        if grows:
            return "was killed, probably for lack of host memory,"
        return "was killed by SIGKILL" if cause == "signal" else "was killed or disappeared"
    kind = str(event.attributes.get(semconv.ERROR_TYPE, ""))
    message = str(event.attributes.get(semconv.EXCEPTION_MESSAGE, ""))
    if any(text in kind or text in message for text in _OUT_OF_MEMORY):
        return "ran out of memory"
    text = ": ".join(part for part in (kind, message.splitlines()[0] if message else "") if part)
    outcome = str(event.attributes.get(semconv.PROCESS_OUTCOME, "failed"))
    verb = "was stopped by" if outcome == "crashed" else "failed with"
    return f"{verb} {text}" if text else outcome


def _inside(phase: str) -> str:
    return f" inside {phase}" if phase else ""


def _open_phase(recorded: Recorded, event: Happening) -> str:
    """Return the innermost phase that the error left, by the spans of the step that failed."""
    if event.step is None or event.rank is None:
        return ""
    role = "role IS NULL" if not event.role else "role IS NOT NULL"
    found = recorded.run.sql(
        f"SELECT phase FROM spans WHERE step = {event.step} AND rank = {event.rank} AND {role}"
        " AND phase IS NOT NULL AND error IS NOT NULL ORDER BY start_unix_nano DESC LIMIT 1"
    )
    return str(found["phase"][0]) if len(found) else ""


def _silence(recorded: Recorded) -> str:
    last = max((one.time_unix_nano for one in recorded.now), default=0)
    if not last:
        return "no end was recorded"
    ago = wording.seconds((recorded.at_unix_nano - last) / _NS)
    return f"no end was recorded, and the agent has written nothing for {ago}: its machine died, or it was killed"
