"""The facts of a run: what it is, how it went, where its time went, and what was found."""

from __future__ import annotations

from html import escape
from typing import Literal

import msgspec

from otel_rl.semconv.phase_categories import Category

Severity = Literal["bad", "warning", "note", "good"]
"""How much a finding matters: it needs somebody now, it costs, it is worth knowing, it is well."""
SEVERITIES: tuple[Severity, ...] = ("bad", "warning", "note", "good")
"""All severities, the worst first."""
Sure = Literal["certain", "likely", "possible"]
"""How sure a finding is: read from records, a test with a stated error, or a pattern that fits."""
Kind = Literal[
    "outcome",
    "wait",
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
State = Literal["live", "hung", "finished", "failed", "crashed", "lost", "empty"]
"""The state of a run: it goes on, it goes on but nothing happens, how it ended, or nothing was recorded."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look: what a screen highlights when the finding is chosen.

    Attributes:
        steps: The first and the last step; `None` if the finding is about no steps, or all.
        ranks: Ranks.
        role: The role of the processes; empty for trainer ranks.
        names: Names of metrics.
        phases: The trainer's names of phases.
        panel: The part of the report that shows it.
    """

    steps: tuple[int, int] | None = None
    ranks: tuple[int, ...] = ()
    role: str = ""
    names: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    panel: Panel = "curves"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run says.

    Attributes:
        kind: What it is about.
        severity: How much it matters.
        sentence: The finding in words and numbers.
        advice: What to do; can be empty.
        sure: How sure it is.
        evidence: Where to look.
    """

    kind: Kind
    severity: Severity
    sentence: str
    advice: str = ""
    sure: Sure = "certain"
    evidence: Evidence = Evidence()


class PhaseShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a phase in the time of the trainer's ranks inside steps; all shares sum to 1.

    Attributes:
        name: The trainer's name of the phase; empty for the time outside of any phase.
        category: What the phase does; `none` outside of any phase.
        seconds: Time of the phase without phases inside it, averaged over ranks.
        share: The fraction of the time of all steps.
    """

    name: str
    category: Category
    seconds: float
    share: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a run, and how far it is.

    Attributes:
        id: Identity of the run.
        project: Its project.
        name: Its display name.
        state: The state of the run.
        reason: Why it failed, crashed, hangs or was lost; empty otherwise.
        started_unix_nano: When its first process started; 0 if nothing was recorded.
        last_unix_nano: When it ended, or something was recorded last; 0 if nothing was recorded.
        duration_s: The time in between.
        first_step: The first step of the valid history; -1 without steps.
        last_step: The last step of the valid history; -1 without steps.
        steps: Number of steps of the valid history.
        total_steps: Number of steps that the run is to have; `None` if it is unknown.
        ranks: Number of ranks of the trainer.
        hosts: Names of its machines.
        attempts: Number of attempts.
        resumed_at: First step of each attempt but the first.
        step_seconds: Recent median of the wall time of a step; NaN without steps.
        step_seconds_before: The median before steps became slower or faster; `None` if they did not.
    """

    id: str
    project: str
    name: str
    state: State
    reason: str = ""
    started_unix_nano: int = 0
    last_unix_nano: int = 0
    duration_s: float = 0.0
    first_step: int = -1
    last_step: int = -1
    steps: int = 0
    total_steps: int | None = None
    ranks: int = 0
    hosts: tuple[str, ...] = ()
    attempts: int = 0
    resumed_at: tuple[int, ...] = ()
    step_seconds: float = float("nan")
    step_seconds_before: float | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that screens show of a run without computing.

    Attributes:
        summary: What the run is, and how far it is.
        findings: What was found, the most severe first.
        shares: Where the time went, the largest share first.
        metrics: The main metrics that the run has, under the framework's own names, in the order of screens.
    """

    summary: Summary
    findings: tuple[Finding, ...] = ()
    shares: tuple[PhaseShare, ...] = ()
    metrics: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return the findings as a table, which Jupyter shows."""
        head = " · ".join(filter(None, (self.summary.project, self.summary.name, self.summary.state)))
        lines = "".join(
            f"<tr><td>{escape(one.severity)}</td><td style='text-align: left'>{escape(one.sentence)}</td>"
            f"<td style='text-align: left'>{escape(one.advice)}</td></tr>"
            for one in self.findings
        )
        return f"<table><caption>{escape(head)}</caption>{lines}</table>"
