"""Whether a run goes on or hangs, and who is missing: from what its agents wrote last, without the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.insight import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.now import Now, ProcessNow, Stalled
    from otel_rl.insight.facts import State

_NS = 1_000_000_000
_FRESH_S = 30.0
"""Age in seconds of a state that a live agent has: it writes one at least every 10 s."""
_MOST_NAMED = 3
_LONGEST = 200
"""Characters of an error."""


class Standing(NamedTuple):
    """The state of a run.

    Attributes:
        state: The state.
        reason: Why it failed, crashed, hangs or was lost; of a live one, who is missing; empty otherwise.
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


def gone(nows: Sequence[Now]) -> list[ProcessNow]:
    """Return the processes that ended badly and whose place nobody has taken, the first one first."""
    last: dict[tuple[str, int], ProcessNow] = {}
    for one in sorted((one for now in nows for one in now.processes), key=lambda one: one.last_unix_nano):
        before = last.get((one.role, one.rank))
        if before is None or before.outcome is not None:
            last[one.role, one.rank] = one
    return [one for one in last.values() if one.outcome not in (None, "finished")]


def how_gone(missing: Sequence[ProcessNow], hosts: set[str]) -> str:
    """Return how the first of some processes ended, and when."""
    first = missing[0]
    error = first.error.splitlines()[0][:_LONGEST] if first.error else ""
    how = f"was {error or 'lost'}" if first.outcome == "lost" else f"{first.outcome}{f' with {error}' if error else ''}"
    then = f", then {wording.count(len(missing) - 1, 'other')}" if len(missing) > 1 else ""
    return f"{_who(first, hosts)} {how} at {wording.clock(first.last_unix_nano)}{then}"


def going(nows: Sequence[Now], at: int) -> Standing:
    """Return the standing of a run whose agents live: it goes on or hangs, with or without all of its processes."""
    missing = gone(nows)
    hung = hang(nows, at)
    if not missing:
        return hung or Standing("live")
    first = missing[0]
    reason = how_gone(missing, {one.host for now in nows for one in now.processes})
    ranks = tuple(one.rank for one in missing if one.role == first.role)
    if hung is not None:
        return hung._replace(
            reason=f"{reason}; {hung.reason}", ranks=hung.ranks if first.role else (*hung.ranks, *ranks)
        )
    return Standing("live", reason, None, ranks, first.role)


def hang(nows: Sequence[Now], at: int) -> Standing | None:
    """Return the standing of a run of which no rank goes on, as its agents found; `None` if one does.

    Args:
        nows: What the agents of the run wrote last; without a head, each machine has one.
        at: The time in Unix nanoseconds.
    """
    live = [now for now in nows if lives(now, at) and _ranks(now)]
    hung = [[one for one in now.stalled if one.kind == "hung" and one.scope == "job"] for now in live]
    if not live or not all(hung):
        return None
    ranks = [one for now in live for one in _ranks(now)]
    first = min((one for found in hung for one in found), key=lambda one: one.since_unix_nano)
    culprits = [one for found in hung for one in found if one.phase == first.phase]
    named = {(one.rank, one.host) for one in culprits}
    hosts = {one.host for one in ranks}
    who = wording.names([_who(one, hosts) for one in culprits], _MOST_NAMED)
    verb = "is" if len(culprits) == 1 else "are"
    where = f"{verb} in {first.phase}" if first.phase else f"{verb} outside of any phase"
    others = {one.phases[-1].name for one in ranks if one.phases and (one.rank, one.host) not in named}
    rest = f"; the others wait in {wording.names(sorted(others))}" if others else ""
    reason = f"{who} {where} for {wording.seconds((at - first.since_unix_nano) / _NS)}{rest}"
    step = next((one.step for one in ranks if (one.rank, one.host) == (first.rank, first.host)), None)
    return Standing("hung", reason, step, tuple(one.rank for one in culprits), "", first.phase)


def _ranks(now: Now) -> list[ProcessNow]:
    """Return the ranks that live, of those that an agent follows."""
    return [one for one in now.processes if not one.role and one.outcome is None]


def _who(one: Stalled | ProcessNow, hosts: set[str]) -> str:
    name = f"{one.role or 'rank'} {one.rank}"
    return f"{name} ({one.host})" if len(hosts) > 1 else name
