"""How a process ended, in words; which ends are bad, and which are the work of its creator."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from otel_rl.export import DeathCause, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CANCELLING = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU"})
"""Signals by which a user, a closed terminal, a batch system or a launcher ends a process.

SIGQUIT, SIGUSR1 and SIGUSR2 are not: inference engines send them to their creator when they fail.
"""
STOP_S = 4
"""Seconds before the end of the first rank from which on helpers may be stopped because the run ends.

A death of a helper is reported as much later: more would delay an alert, less would accuse helpers of slow shutdowns.
"""
_FINISHING_S = 60
"""Seconds after the end of a rank for which the run is ending while other ranks live."""
_STOPS: frozenset[tuple[Outcome, DeathCause]] = frozenset({("failed", "exit"), ("lost", "signal"), ("lost", "")})
_NS = 1_000_000_000
_CAUSES = frozenset[str](get_args(DeathCause))
_OUT_OF_MEMORY = ("OutOfMemoryError", "CUDA out of memory", "HIP out of memory", "RESOURCE_EXHAUSTED", "MemoryError")
_LONGEST = 200
"""Characters of an error."""
_PLAIN = frozenset({"Terminated", "Interrupt", "Hangup"})
"""Descriptions of signals that say no more than their names."""
_KILLED: Mapping[str, str] = {
    "": "was killed or disappeared",
    "signal": "was killed by SIGKILL",
    "oom_kill": "was killed by the kernel for lack of host memory",
    "exec": "started another program in its place",
    "slurm_time_limit": "was ended by Slurm at the time limit of the job",
    "slurm": "was canceled or preempted by Slurm",
    "stopped": "was stopped as the run ended",
}
"""Verbs of sentences about processes that ended without a report, by cause."""


def process_name(role: str, rank: int) -> str:
    """Return a process in sentences: `rank 3`, or its role and its number."""
    return f"{role or 'rank'} {rank}"


def cause_of(text: str | None) -> DeathCause:
    """Return a recorded cause of a death; empty if it is unknown."""
    return text if text in _CAUSES else ""  # type: ignore[return-value] # one of the literals


def ended_badly(outcome: Outcome | None) -> bool:
    """Return whether a process has ended, and not as it should."""
    return outcome not in (None, "finished")


def may_be_stopped(outcome: Outcome, cause: DeathCause) -> bool:
    """Return whether its creator may have ended a process with a role in this way.

    Args:
        outcome: How it ended.
        cause: Why it ended without a report; the kernel is not its creator, and an exception has a report.
    """
    return outcome == "cancelled" or (outcome, cause) in _STOPS


def stopped_by_the_end(ended_unix_nano: int, ranks: Iterable[tuple[Outcome | None, int]]) -> Outcome | None:
    """Return the outcome of a process with a role that was stopped because the run ended; `None` if it was not.

    Args:
        ended_unix_nano: When it ended.
        ranks: The outcome of each rank, `None` while it runs, and when it ended.
    """
    known = list(ranks)
    if any(ended_badly(outcome) and ended <= ended_unix_nano for outcome, ended in known):
        return "cancelled"
    well = [ended for outcome, ended in known if outcome == "finished" and ended - STOP_S * _NS <= ended_unix_nano]
    are_over = all(outcome is not None for outcome, _ in known)
    is_recent = bool(well) and max(well) >= ended_unix_nano - _FINISHING_S * _NS
    return "finished" if well and (are_over or is_recent) else None


def how_it_ended(outcome: Outcome, error: str = "", cause: DeathCause = "") -> str:
    """Return the verb of a sentence about a process that has ended, such as `failed with ValueError: no data`.

    Args:
        outcome: How it ended.
        error: Type and message of the exception, or name and description of the signal; only the first line is used.
        cause: Why it ended without a report.
    """
    if outcome == "lost" or cause not in ("", "exit"):
        return _KILLED.get(cause, _KILLED[""])
    text = error.strip().partition("\n")[0][:_LONGEST]
    name, _, description = text.partition(": ")
    text = name if description in _PLAIN else text
    if outcome == "failed" and any(name in error for name in _OUT_OF_MEMORY):
        return "ran out of memory"
    match outcome:
        case "finished":
            return "has ended well"
        case "cancelled":
            return f"was cancelled{f' by {text}' if text else ''}"
        case "failed":
            return f"failed{f' with {text}' if text else ''}"
        case _:
            return f"crashed{f' with {text}' if text else ''}"
