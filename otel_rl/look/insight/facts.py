"""The facts of a run: what it is, how it went, where its time went, and what was found."""

from __future__ import annotations

from html import escape
from typing import Literal

import msgspec
from msgspec.structs import replace

from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.order import Severity
from otel_rl.recorder.facts.states import State, Sure
from otel_rl.semconv.phase_categories import Category

Kind = Literal[
    "outcome",
    "wait",
    "hang",
    "time",
    "change",
    "straggler",
    "goodput",
    "memory",
    "learning",
    "data",
    "engines",
    "mismatch",
    "recording",
    "environment",
]
"""The subject of a finding."""
Panel = Literal[
    "curves",
    "phases",
    "timeline",
    "waiting",
    "memory",
    "engines",
    "events",
    "data",
    "goodput",
    "environment",
    "recording",
]
"""The part of a report that shows the evidence."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look: what a screen highlights when the finding is chosen."""

    steps: tuple[int, int] | None = None  # the first and the last step; `None` if the finding is about no steps, or all
    ranks: tuple[int, ...] = ()  # ranks
    role: str = ""  # the role of the processes; empty for trainer ranks
    names: tuple[str, ...] = ()  # names of metrics
    phases: tuple[str, ...] = ()  # the trainer's names of phases
    panel: Panel = "curves"  # the part of the report that shows it


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run says."""

    kind: Kind  # what it is about
    severity: Severity  # how much it matters
    sentence: str  # the finding in words and numbers
    advice: str = ""  # what to do; can be empty
    sure: Sure = "certain"  # how sure it is
    evidence: Evidence = Evidence()  # where to look
    since_unix_nano: int = 0  # when it began; of a step, when that ended; 0 if it is about no moment
    subject: str = ""  # what it is about, such as `metric:loss`; findings with one subject are one line
    covers: tuple[str, ...] = ()  # subjects of other findings that it says as well
    needs: tuple[str, ...] = ()  # subjects, or their beginnings, without whose troubles alone it is good
    also: tuple[str, ...] = ()  # sentences of findings that say the same; its evidence in words


class PhaseShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a phase in the time of the trainer's ranks inside steps of the whole run; all shares sum to 1."""

    name: str  # the trainer's name of the phase; empty for the time outside of any phase
    category: Category  # what the phase does; `none` outside of any phase
    seconds: float  # time of the phase without phases inside it, averaged over ranks
    share: float  # the fraction of the time of all steps


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a run, and how far it is."""

    id: str  # identity of the run
    project: str  # its project
    name: str  # its display name
    state: State  # the state of the run
    reason: str = ""  # why it failed, crashed, hangs or was lost; empty otherwise
    started_unix_nano: int = 0  # when its first process started; 0 if nothing was recorded
    last_unix_nano: int = 0  # its last sign of life; 0 if nothing was recorded
    duration_s: float = 0.0  # the time from its start to its end, or to now while it goes on
    first_step: int = -1  # the first step of the valid history; -1 without steps
    last_step: int = -1  # the last step of the valid history; -1 without steps
    steps: int = 0  # number of steps of the valid history
    total_steps: int | None = None  # number of steps that the run is to have; `None` if it is unknown
    ranks: int = 0  # number of ranks of the trainer
    hosts: tuple[str, ...] = ()  # names of its machines
    attempts: int = 0  # number of attempts
    resumed_at: tuple[int, ...] = ()  # first step of each attempt but the first
    recent_step_seconds: float | None = None  # median time of the last 20 steps; `None` if it is unknown
    step_seconds_before: float | None = None  # the median before steps became slower or faster; `None` if they did not
    changed_at_step: int | None = None  # the step since which they are; `None` if they did not


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a run. GPUs are those of trainer ranks; inference servers and other roles are not counted."""

    gpu_hours: float | None = None
    """Hours of the GPUs of the trainer's ranks, without attempts that had no whole step before a GPU was seen; `None`
    if GPUs are unknown, also if ranks of one machine list several each and may share them."""
    wasted_share: float | None = None  # the share of it that hung, was repeated, or lost; `None` if it is unknown
    tokens: int | None = None  # tokens of trajectories of all attempts; `None` if they were not recorded
    cost_per_gpu_hour: float | None = None  # the price of an hour of a GPU; `None` if it is not set
    money: float | None = None  # the price of the hours; `None` if one of both is unknown

    def repriced(self, price: float | None) -> Cost:
        """Return it at a price of an hour of a GPU."""
        money = None if self.gpu_hours is None or price is None else self.gpu_hours * price
        return replace(self, cost_per_gpu_hour=price, money=money)

    @property
    def words(self) -> str:
        """The hours with their wasted share, money and tokens, as far as they are known."""
        wasted = f" ({wording.percent(self.wasted_share)} wasted)" if self.wasted_share else ""
        parts = (
            "" if self.gpu_hours is None else f"{wording.number(self.gpu_hours)} GPU-hours{wasted}",
            "" if self.money is None else f"cost {wording.number(self.money)}",
            "" if self.tokens is None else f"{self.tokens:,} tokens",
        )
        return ", ".join(filter(None, parts))


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that screens show of a run without computing."""

    summary: Summary  # what the run is, and how far it is
    findings: tuple[Finding, ...] = ()  # what was found: what is wrong first, surest and newest before others
    shares: tuple[PhaseShare, ...] = ()  # where the time of the whole run went in steps, the largest share first
    goodput: dict[str, float] = {}
    """The parts of the wall time of the whole run, which sum to 1: `trained`, and what the rest was lost to."""
    cost: Cost = Cost()  # the hours of its GPUs, tokens and money, as far as they were recorded
    metrics: tuple[str, ...] = ()
    """The main metrics that the run has, under the framework's own names, in the order of screens."""

    @property
    def severity(self) -> Severity:
        """How much what is to be read first matters."""
        return self.findings[0].severity if self.findings else "note"

    def _repr_html_(self) -> str:
        """Return the findings as a table, which Jupyter shows."""
        head = " · ".join(filter(None, (self.summary.project, self.summary.name, self.summary.state)))
        lines = "".join(
            f"<tr><td>{escape(finding.severity)}</td><td style='text-align: left'>{escape(finding.sentence)}</td>"
            f"<td style='text-align: left'>{escape(finding.advice)}</td></tr>"
            for finding in self.findings
        )
        return f"<table><caption>{escape(head)}</caption>{lines}</table>"
