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
        silent: The machines from which nothing arrives; empty if a process is gone, which is worse.
    """

    state: State
    reason: str = ""
    step: int | None = None
    ranks: tuple[int, ...] = ()
    role: str = ""
    phase: str = ""
    silent: tuple[str, ...] = ()


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


def silent(nows: Sequence[Now], at: int) -> list[Stalled]:
    """Return the late processes of machines from which nothing arrives."""
    return [one for now in nows if lives(now, at) for one in now.stalled if one.kind == "silent"]


def how_silent(found: Sequence[Stalled]) -> str:
    """Return which machines are silent, since when, and the names of their processes."""
    hosts = _hosts(found)
    since = wording.clock(min(one.silent_since_unix_nano for one in found))
    who = wording.names([_who(one, set(hosts)) for one in found], _MOST_NAMED)
    return f"nothing arrives from {wording.names(hosts, _MOST_NAMED)} since {since}; {who} may be well"


def going(nows: Sequence[Now], at: int) -> Standing:
    """Return the standing of a run whose agents live: it goes on or hangs, with or without all of its processes."""
    missing, quiet = gone(nows), silent(nows, at)
    stands = hang(nows, at) or Standing("live")
    reasons = [how_silent(quiet)] if quiet else []
    reasons += [how_gone(missing, {one.host for now in nows for one in now.processes})] if missing else []
    reasons += [stands.reason] if stands.reason else []
    absent = missing or quiet
    role = absent[0].role if absent else ""
    ranks = tuple(one.rank for one in absent if one.role == role)
    if stands.state == "live":
        stands = stands._replace(ranks=ranks, role=role)
    elif missing and not role:
        stands = stands._replace(ranks=(*stands.ranks, *ranks))
    return stands._replace(reason="; ".join(reasons), silent=() if missing else _hosts(quiet))


def hang(nows: Sequence[Now], at: int) -> Standing | None:
    """Return the standing of a run of which no rank goes on, as its agents found; `None` if one does, or may.

    If the others wait for machines that are silent, the reason names these others alone.

    Args:
        nows: What the agents of the run wrote last; without a head, each machine has one.
        at: The time in Unix nanoseconds.
    """
    live = [now for now in nows if lives(now, at) and _ranks(now)]
    verdicts = [[one for one in now.stalled if one.kind != "slow" and one.scope == "job"] for now in live]
    if not live or not all(verdicts):
        return None
    ranks = [one for now in live for one in _ranks(now)]
    stuck = [one for found in verdicts for one in found]
    hung = [one for one in stuck if one.kind == "hung"]
    first = min(hung or stuck, key=lambda one: one.since_unix_nano)
    culprits = [one for one in hung if one.phase == first.phase] or stuck
    named, quiet = {(one.rank, one.host) for one in culprits}, set() if hung else {*_hosts(stuck)}
    others = [one for one in ranks if (one.rank, one.host) not in named and one.host not in quiet]
    if not (hung or others):
        return None  # nothing is known of any rank
    hosts = {one.host for one in ranks}
    who = wording.names([_who(one, hosts) for one in culprits], _MOST_NAMED)
    verb = "is" if len(culprits) == 1 else "are"
    where = f"{verb} in {first.phase}" if first.phase else f"{verb} outside of any phase"
    known = [f"{who} {where} for {wording.seconds((at - first.since_unix_nano) / _NS)}"] if hung else []
    phases = {one.phases[-1].name for one in others if one.phases}
    known += [f"the others wait in {wording.names(sorted(phases))}"] if phases else []
    step = next((one.step for one in ranks if (one.rank, one.host) == (first.rank, first.host)), None)
    return Standing("hung", "; ".join(known), step, tuple(one.rank for one in culprits), "", first.phase)


def _ranks(now: Now) -> list[ProcessNow]:
    """Return the ranks that live, of those that an agent follows."""
    return [one for one in now.processes if not one.role and one.outcome is None]


def _hosts(found: Sequence[Stalled]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.host for one in found))


def _who(one: Stalled | ProcessNow, hosts: set[str]) -> str:
    name = f"{one.role or 'rank'} {one.rank}"
    return f"{name} ({one.host})" if len(hosts) > 1 else name
