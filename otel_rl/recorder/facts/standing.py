"""The state of a run, and why: one rule for all screens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.processes import ended_badly, how_it_ended, may_be_stopped, process_name, stopped_by_the_end

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from otel_rl.export import Outcome
    from otel_rl.recorder.facts.signs import AgentReport, AttemptEnd, KnownProcess, RunSigns, Stalled
    from otel_rl.recorder.facts.states import State

_NS = 1_000_000_000
_FRESH_NS = 30 * _NS
"""Age of the report of an agent that lives, which writes one at least every 10 s, and of a start whose agent may still
be loading.
"""
_MOST_NAMED = 3


Lack = Literal["", "report", "agent", "machine", "process"]
"""The parts that a live run can lack: the first report of an agent, a living agent, a machine from which nothing
arrives, or a process that ended badly.
"""


class Standing(NamedTuple):
    """The state of a run."""

    state: State  # the state
    reason: str = ""  # why it is in this state; of a live one, what it lacks; empty if there is nothing to say
    step: int | None = None  # the step in which that happened; `None` if it is unknown
    ranks: tuple[int, ...] = ()  # the ranks that it happened to, the first one first
    role: str = ""  # their role; empty for trainer ranks
    phase: str = ""  # the phase in which it happened; empty if it is unknown
    lacks: Lack = ""  # what a live, hung or lost run lacks; the worst thing if there are several


def standing(signs: RunSigns, at: int) -> Standing:
    """Return the state of a run at a time in Unix nanoseconds."""
    processes = of_last_attempt(signs.agents)
    known = max([*(process.attempt for process in processes), *(end.attempt for end in signs.ends)], default=-1)
    if _has_just_begun(signs, known, at):
        return Standing("live", "no agent has written yet", lacks="report")
    if (end := _ended(processes, [end for end in signs.ends if end.attempt >= known])) is not None:
        return end
    is_recorded = bool(processes) or signs.has_steps
    if any(lives(agent, at) for agent in signs.agents):
        is_silent = Standing("live", "no process has recorded anything yet", lacks="report")
        return going(signs.agents, at) if is_recorded else is_silent
    return _without_agent(signs, at, is_recorded=is_recorded)


def lives(agent: AgentReport, at: int) -> bool:
    """Return whether an agent was alive at a time in Unix nanoseconds, by its last report."""
    return not agent.has_ended and at - agent.time_unix_nano < _FRESH_NS


def of_last_attempt(agents: Iterable[AgentReport]) -> list[KnownProcess]:
    """Return the processes of the last attempt, one for each rank or place of a role, in the order of their ends."""
    every = [process for agent in agents for process in agent.processes]
    attempt = max((process.attempt for process in every), default=0)
    last: dict[tuple[str, int], KnownProcess] = {}
    for process in sorted(every, key=lambda process: process.last_unix_nano):
        earlier = last.get((process.role, process.rank))
        if process.attempt == attempt and (earlier is None or earlier.outcome is not None):
            last[process.role, process.rank] = process
    return list(last.values())


def hosts_of(processes: Iterable[KnownProcess]) -> tuple[str, ...]:
    """Return the machines of processes, those of the first ranks first."""
    in_order = sorted(processes, key=lambda process: (process.role, process.rank))
    return tuple(dict.fromkeys(process.host for process in in_order))


def downs(processes: Iterable[KnownProcess]) -> list[KnownProcess]:
    """Return the processes that ended badly, in the order of their ends; not those that their creator stopped."""
    known = list(processes)
    bad = [process for process in known if ended_badly(process.outcome) and not _was_stopped(process, known)]
    return sorted(bad, key=lambda process: (process.down_order, process.last_unix_nano, process.role, process.rank))


def outcome_of(processes: Sequence[KnownProcess]) -> Outcome:
    """Return the outcome of an attempt whose processes have ended: that of the rank that ended badly first.

    Processes with a role count only if there are no ranks, since their creator may stop them.
    """
    bad = downs([process for process in processes if not process.role] or processes)
    return bad[0].outcome or "finished" if bad else "finished"


def down_before(processes: Iterable[KnownProcess], attempt: int) -> KnownProcess | None:
    """Return the first process that ended badly in the last attempt before another one in which one did."""
    bad = downs(process for process in processes if process.attempt < attempt)
    last = max((process.attempt for process in bad), default=0)
    return next((process for process in bad if process.attempt == last), None)


def gone(agents: Sequence[AgentReport]) -> list[KnownProcess]:
    """Return the processes that ended badly and whose place nobody has taken, in the order of their ends."""
    return downs(of_last_attempt(agents))


def how_gone(missing: Sequence[KnownProcess], agents: Sequence[AgentReport]) -> str:
    """Return how the first of some processes ended, and when."""
    hosts = {process.host for agent in agents for process in agent.processes}
    return f"{how_down(missing[0], hosts)} at {wording.clock(missing[0].last_unix_nano)}{_then(missing)}"


def how_down(process: KnownProcess, hosts: Collection[str]) -> str:
    """Return how a process ended, and in which phase: `rank 3 (node2) was killed by SIGKILL inside update_actor`.

    Args:
        process: The process.
        hosts: The machines of the run; if there is one, it is not named.
    """
    how = how_it_ended(process.outcome or "lost", process.error, process.cause)
    return f"{_who(process, hosts)} {how}{f' inside {process.phase}' if process.phase else ''}"


def silent(agents: Sequence[AgentReport], at: int) -> list[Stalled]:
    """Return the late processes of machines from which nothing arrives."""
    return [stall for agent in agents if lives(agent, at) for stall in agent.stalls if stall.kind == "silent"]


def how_silent(stalls: Sequence[Stalled]) -> str:
    """Return which machines are silent, since when, and the names of their processes."""
    hosts = _hosts(stalls)
    since = wording.clock(min(stall.silent_since_unix_nano for stall in stalls))
    who = wording.names([_who(stall, set(hosts)) for stall in stalls], _MOST_NAMED)
    return f"nothing arrives from {wording.names(hosts, _MOST_NAMED)} since {since}; {who} may be well"


def going(agents: Sequence[AgentReport], at: int) -> Standing:
    """Return the standing of a run whose agents live: it goes on or hangs, with or without all of its processes."""
    missing, quiet = gone(agents), silent(agents, at)
    stands = hang(agents, at) or Standing("live")
    reasons = [how_silent(quiet)] if quiet else []
    reasons += [how_gone(missing, agents)] if missing else []
    reasons += [stands.reason] if stands.reason else []
    absent = missing or quiet
    role = absent[0].role if absent else ""
    ranks = tuple(process.rank for process in absent if process.role == role)
    if stands.state == "live":
        stands = stands._replace(ranks=ranks, role=role)
    elif missing and not role:
        stands = stands._replace(ranks=(*stands.ranks, *ranks))
    return stands._replace(reason="; ".join(reasons), lacks="process" if missing else "machine" if quiet else "")


def hang(agents: Sequence[AgentReport], at: int) -> Standing | None:
    """Return the standing of a run in which no rank goes on, as its agents found; `None` if a rank goes on, or may.

    If the others wait for machines that are silent, the reason names these others alone.

    Args:
        agents: What the agents of the run reported last.
        at: The time in Unix nanoseconds.
    """
    live = [agent for agent in agents if lives(agent, at) and _ranks(agent)]
    verdicts = [[stall for stall in agent.stalls if stall.kind != "slow" and stall.scope == "job"] for agent in live]
    if not live or not all(verdicts):
        return None
    ranks = [process for agent in live for process in _ranks(agent)]
    stuck = [stall for stalls in verdicts for stall in stalls]
    hung = [stall for stall in stuck if stall.kind == "hung"]
    first = min(hung or stuck, key=lambda stall: stall.since_unix_nano)
    culprits = [stall for stall in hung if stall.phase == first.phase] or stuck
    named, quiet = {(stall.rank, stall.host) for stall in culprits}, set() if hung else {*_hosts(stuck)}
    others = [process for process in ranks if (process.rank, process.host) not in named and process.host not in quiet]
    if not (hung or others):
        return None  # nothing is known of any rank
    hosts = {process.host for process in ranks}
    who = wording.names([_who(stall, hosts) for stall in culprits], _MOST_NAMED)
    verb = "is" if len(culprits) == 1 else "are"
    where = f"{verb} in {first.phase}" if first.phase else f"{verb} outside of any phase"
    known = [f"{who} {where} for {wording.seconds((at - first.since_unix_nano) / _NS)}"] if hung else []
    phases = {process.phase for process in others if process.phase}
    known += [f"the others wait in {wording.names(sorted(phases))}"] if phases else []
    step = next((process.step for process in ranks if (process.rank, process.host) == (first.rank, first.host)), None)
    return Standing("hung", "; ".join(known), step, tuple(stall.rank for stall in culprits), "", first.phase)


def _has_just_begun(signs: RunSigns, known: int, at: int) -> bool:
    """Return whether processes have begun an attempt of which no agent has written; `known` is the last one else."""
    start = signs.start
    if start is None or start.attempt <= known or (known < 0 and signs.has_steps):  # plain rows have no attempt
        return False
    is_fresh = at - start.time_unix_nano < _FRESH_NS
    return is_fresh if start.lives_here is None else start.lives_here


def _without_agent(signs: RunSigns, at: int, *, is_recorded: bool) -> Standing:
    """Return the standing of a run that has no known end, and whose agents do not live."""
    silence = _silence(signs.agents, at)
    if signs.start is not None and signs.start.lives_here:
        is_silent = Standing("live", f"its agent has written nothing for {silence}", lacks="agent")
        return is_silent if silence else Standing("live")
    if not is_recorded:
        is_unread = Standing("lost", "no agent has read what it recorded", lacks="report")
        return Standing("empty") if signs.start is None else is_unread
    if not silence or all(agent.has_ended for agent in signs.agents):
        return Standing("lost", "no end was recorded")
    why = f"the agent has written nothing for {silence}: its machine died, or it was killed"
    return Standing("lost", f"no end was recorded, and {why}")


def _was_stopped(process: KnownProcess, known: Iterable[KnownProcess]) -> bool:
    """Return whether its creator may have stopped a process with a role.

    Its agent has decided that by the ranks that it follows; without a head, they are on other machines.
    """
    if not process.role or process.outcome is None or not may_be_stopped(process.outcome, process.cause):
        return False
    ranks = [(one.outcome, one.last_unix_nano) for one in known if not one.role and one.attempt == process.attempt]
    if process.outcome == "cancelled":
        return bool(ranks)
    return stopped_by_the_end(process.last_unix_nano, ranks) is not None


def _ended(processes: Sequence[KnownProcess], ends: Sequence[AttemptEnd]) -> Standing | None:
    """Return how an attempt ended, and the process that ended badly first; `None` if it has not ended."""
    bad = downs(processes)
    if processes and all(process.outcome is not None for process in processes):
        state, reason = outcome_of(processes), ""
    elif ends:
        state, reason = ends[-1].outcome, ends[-1].error
    else:
        return None
    if not bad:
        return Standing(state, reason)
    first = bad[0]
    ranks = tuple(dict.fromkeys(process.rank for process in bad if process.role == first.role))
    reason = f"{how_down(first, {process.host for process in processes})}{_then(bad)}"
    return Standing(state, reason, first.step, ranks, first.role, first.phase)


def _silence(agents: Sequence[AgentReport], at: int) -> str:
    """Return for how long no agent has written; empty if there was none."""
    last = max((agent.time_unix_nano for agent in agents), default=0)
    return wording.seconds(max(0, at - last) / _NS) if last else ""


def _ranks(agent: AgentReport) -> list[KnownProcess]:
    """Return the living ranks that an agent follows."""
    return [process for process in agent.processes if not process.role and process.outcome is None]


def _then(missing: Sequence[KnownProcess]) -> str:
    return f", then {wording.count(len(missing) - 1, 'other')}" if len(missing) > 1 else ""


def _hosts(stalls: Sequence[Stalled]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stall.host for stall in stalls))


def _who(process: Stalled | KnownProcess, hosts: Collection[str]) -> str:
    name = process_name(process.role, process.rank)
    return f"{name} ({process.host})" if len(hosts) > 1 else name
