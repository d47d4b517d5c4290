"""The facts of an answer to "why did this step take so long"."""

from __future__ import annotations

import msgspec

from otel_rl.insight.why.window import WorkKind


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the critical path; all parts of an answer add up to its time.

    Attributes:
        kind: The kind of work.
        name: Its name, such as that of a phase or of a tool; of time without recorded work, the role of the process.
        seconds: Its time on the path.
        usual_seconds: Its time on the paths of usual steps; `None` without any.
        change_seconds: The difference; `seconds` without usual steps.
        saves_seconds: What the step would save if it was as usual, by replay; `None` if it does not take longer.
        who: Who did it, the one with the most time first, such as `rank 3 (node2)`.
        number: How many times it is on the path.
        longest_seconds: The longest of those.
        is_inferred: Whether its cause was inferred, at least for half of its time.
    """

    kind: WorkKind
    name: str
    seconds: float
    usual_seconds: float | None
    change_seconds: float
    saves_seconds: float | None
    who: tuple[str, ...]
    number: int
    longest_seconds: float
    is_inferred: bool


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the path of the slowest step, in seconds from its begin; `who` as in `Part`."""

    kind: WorkKind
    name: str
    who: str
    began_seconds: float
    ended_seconds: float
    is_inferred: bool


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why steps took their time.

    Attributes:
        steps: The steps that are explained; their times are means.
        usual_steps: The steps that they are compared with; empty if there are none.
        phase: The phase that is explained, instead of whole steps; empty for these.
        seconds: The wall time.
        usual_seconds: The wall time of the usual steps; `None` without any.
        sentences: The answer, the most important part first.
        parts: The parts of the critical path, the one that explains the most first.
        path: The path of the slowest of the steps.
        clocks_seconds: How far clocks on the path may differ; 0 for one clock.
        notes: What changed in the run, if no step was chosen; then what limits the answer.
    """

    steps: tuple[int, ...]
    usual_steps: tuple[int, ...]
    phase: str
    seconds: float
    usual_seconds: float | None
    sentences: tuple[str, ...]
    parts: tuple[Part, ...]
    path: tuple[Stage, ...]
    clocks_seconds: float
    notes: tuple[str, ...]
