"""Whether a run hangs, and which ranks the others wait for: from what its agents wrote last, without the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.insight import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.now import Now, ProcessNow
    from otel_rl.insight.facts import State

_NS = 1_000_000_000
_FRESH_S = 30.0
"""Age in seconds of a state that a live agent has: it writes one at least every 10 s."""
_SILENT_S = 60.0
"""Seconds in which a rank that hangs records nothing, at the least."""
_TIMES_LONGEST = 5.0
"""How often the longest time of its phase in a step so far a rank that hangs records nothing, at the least."""
_SILENT_AT_FIRST_S = 1800.0
"""The same in a phase that did not end before: engines start, models are compiled, the first evaluation runs."""
_MOST_NAMED = 3


class Standing(NamedTuple):
    """The state of a run.

    Attributes:
        state: The state.
        reason: Why it failed, crashed, hangs or was lost; empty otherwise.
        step: The step in which that happened; `None` if it is unknown.
        ranks: The ranks that it happened to, the first one first.
        role: Their role; empty for trainer ranks.
        phase: The phase in which it happened; empty if it is unknown.
    """

    state: State
    reason: str = ""
    step: int | None = None
    ranks: tuple[int, ...] = ()
    role: str = ""
    phase: str = ""


def lives(now: Now, at: int) -> bool:
    """Return whether an agent was alive at a time in Unix nanoseconds, by what it wrote last."""
    return now.state != "ended" and at - now.time_unix_nano < _FRESH_S * _NS


def hang(nows: Sequence[Now], at: int) -> Standing | None:
    """Return the standing of a run whose ranks all record nothing for too long; `None` if one does.

    Args:
        nows: What the agents of the run wrote last.
        at: The time in Unix nanoseconds.
    """
    live = [one for one in nows if lives(one, at)]
    processes = [one for now in live for one in now.processes if not one.role]
    last = max((one.attempt for one in processes), default=0)
    ranks = [one for one in processes if one.outcome is None and one.attempt == last]
    if not ranks or any(_is_active(one, live, at) for one in ranks):
        return None
    silent = wording.seconds((at - max(one.last_unix_nano for one in ranks)) / _NS)
    phases = {one.rank: _place(one) for one in ranks if one.phases}
    culprits = _behind(ranks)
    hosts = {one.host for one in processes}
    named = wording.names([_who(one, hosts) for one in culprits], _MOST_NAMED)
    phase = phases.get(culprits[0].rank, "")
    verb = "is" if len(culprits) == 1 else "are"
    where = f"{verb} in {phase}" if phase else f"{verb} outside of any phase"
    others = {one for rank, one in phases.items() if rank not in {each.rank for each in culprits}}
    rest = f"; the others wait in {wording.names(sorted(others))}" if others else ""
    reason = f"{named} {where} for {silent}{rest}"
    return Standing("hung", reason, culprits[0].step, tuple(one.rank for one in culprits), "", phase)


def _is_active(rank: ProcessNow, nows: Sequence[Now], at: int) -> bool:
    longest = max((now.progress.longest.get(_place(rank), 0.0) for now in nows), default=0.0)
    usual = max(_SILENT_S, _TIMES_LONGEST * longest) if longest else _SILENT_AT_FIRST_S
    return (at - rank.last_unix_nano) / _NS < usual


def _place(rank: ProcessNow) -> str:
    """Return the innermost open phase of a rank; empty outside of any."""
    return rank.phases[-1].name if rank.phases else ""


def _who(rank: ProcessNow, hosts: set[str]) -> str:
    return f"rank {rank.rank} ({rank.host})" if len(hosts) > 1 else f"rank {rank.rank}"


def _behind(ranks: list[ProcessNow]) -> list[ProcessNow]:
    """Return the ranks that the others wait for: the fewest that are at another place, and got there first.

    A rank that hangs entered its phase before the others entered the collective in which they wait.
    """
    places: dict[tuple[int | None, str], list[ProcessNow]] = {}
    for one in ranks:
        places.setdefault((one.step, _place(one)), []).append(one)
    if len(places) == 1:
        return ranks
    return min(places.values(), key=lambda found: (len(found), min(one.last_unix_nano for one in found)))
