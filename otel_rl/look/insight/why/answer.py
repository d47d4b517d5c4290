"""The facts of an answer to "why is this run slow, stuck or dead", and to "why did this step take so long"."""

from __future__ import annotations

import msgspec

from otel_rl.look.insight.facts import Finding
from otel_rl.look.insight.owed import Owed
from otel_rl.look.insight.span_work import WorkKind
from otel_rl.recorder.archive.autopsies import Autopsy
from otel_rl.recorder.facts.states import State


class PathPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the critical path; all parts of an answer add up to its time."""

    kind: WorkKind  # the kind of work
    name: str  # its name, such as that of a phase or of a tool; of time without recorded work, the role of the process
    seconds: float  # its time on the path
    usual_seconds: float | None  # its time on the paths of usual steps; `None` without any
    change_seconds: float  # the difference; `seconds` without usual steps
    saves_seconds: float | None
    """The time that the step would save if it was as usual, by replay; `None` if it does not take longer."""
    who: tuple[str, ...]  # who did it, the one with the most time first, such as `rank 3 (node2)`
    number: int  # how many times it is on the path
    longest_seconds: float  # the longest of those
    is_inferred: bool  # whether its cause was inferred, at least for half of its time


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the path of the slowest step, in seconds from its begin; `who` as in `PathPart`."""

    kind: WorkKind
    name: str
    who: str
    began_seconds: float
    ended_seconds: float
    is_inferred: bool


class ExplainedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Why steps took their time."""

    steps: tuple[int, ...]  # the steps that are explained; their times are means
    usual_steps: tuple[int, ...]  # the steps that they are compared with; empty if there are none
    phase: str  # the phase that is explained, instead of whole steps; empty for these
    seconds: float  # the wall time
    usual_seconds: float | None  # the wall time of the usual steps; `None` without any
    sentences: tuple[str, ...]  # the answer, the most important part first
    parts: tuple[PathPart, ...]  # the parts of the critical path, the one that explains the most first
    path: tuple[Stage, ...]  # the path of the slowest of the steps
    clocks_seconds: float  # how far clocks on the path may differ; 0 for one clock
    notes: tuple[str, ...]  # steps that are slow for other reasons, then what limits the answer


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run is slow, stuck or dead."""

    path: str  # the run directory
    id: str  # identity of the run
    state: State  # the state of the run
    sentences: tuple[str, ...]  # the answer, the most important part first
    advice: tuple[str, ...] = ()  # what to do
    findings: tuple[Finding, ...] = ()  # the findings that answer; of a run that is well, the first three
    owed: Owed | None = None  # what it waits for, or waited for when it died; `None` if that does not answer
    autopsy: Autopsy | None = None  # the newest autopsy of this hang or death, without stacks; `None` without one
    steps: ExplainedSteps | None = None  # why the slow steps, or those that were asked for, took their time
