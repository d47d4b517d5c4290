"""The signs by which the state of a run is decided: its processes, the reports of its agents, its starts and ends.

Agents write them to `now.json`; of a run without that file, they are read from the tables of its archive.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from otel_rl.export import DeathCause, Outcome


class KnownProcess(msgspec.Struct, frozen=True):
    """A process of a run."""

    attempt: int  # its attempt
    role: str  # its role; empty for a trainer rank
    rank: int  # its rank
    host: str  # name of its machine
    last_unix_nano: int  # when it ended or recorded something last
    outcome: Outcome | None = None  # how it ended; `None` while it runs
    error: str = ""  # the error that ended it
    cause: DeathCause = ""  # why it ended without a report
    step: int | None = None  # the step that it is in, or in which it ended badly; `None` outside of any
    phase: str = ""  # the innermost phase that it is in, or in which it ended badly; empty outside of any
    down_order: int = 0  # its place among the processes that ended badly, from 1; 0 if it did not


class Stalled(msgspec.Struct, frozen=True, kw_only=True):
    """A process that does not go on."""

    kind: Literal["hung", "slow", "silent"]
    """The word "slow" if it works, "silent" if nothing arrives from its machine, "hung" otherwise."""
    scope: Literal["process", "job"]  # "job" if no rank that the agent follows goes on, "process" otherwise
    role: str = ""  # its role; empty for a trainer rank
    rank: int  # its rank
    host: str  # name of its machine
    phase: str = ""  # the phase that it is in; empty outside of any
    part: str = ""  # the part of the phase
    since_unix_nano: int  # when it came there
    usual_s: float | None = None  # median time of the phase; `None` if it never ended before
    deadline_s: float  # time after which it counts as stalled
    evidence: str = ""  # what it does
    silent_since_unix_nano: int = 0  # when its machine sent something last, if it is silent; 0 otherwise


class AgentReport(NamedTuple):
    """The last report of the agent of a machine; without a head agent, each machine has one."""

    time_unix_nano: int  # when it was written, at least every 10 s by an agent that lives; 0 if no agent wrote it
    has_ended: bool  # whether the agent ended in order
    processes: tuple[KnownProcess, ...]  # the processes of the last attempt that it follows
    stalls: tuple[Stalled, ...] = ()  # those that do not go on


class AttemptEnd(NamedTuple):
    """The recorded end of an attempt."""

    attempt: int
    outcome: Outcome
    error: str
    time_unix_nano: int


class LastStart(NamedTuple):
    """The last start of processes of a run, as they noted it in the run directory before any agent knew of them."""

    attempt: int  # the attempt that they began
    time_unix_nano: int  # when it began
    lives_here: bool | None  # whether one of its processes on this machine lives; `None` if none is known there


class RunSigns(NamedTuple):
    """All signs of a run; what is not known is empty."""

    agents: tuple[AgentReport, ...] = ()  # the last reports of its agents; of a run without any, what is recorded
    ends: tuple[AttemptEnd, ...] = ()  # the recorded ends of attempts, of a run without reports
    has_steps: bool = False  # whether it has recorded a step
    start: LastStart | None = None  # its last start
