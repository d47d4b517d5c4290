"""The work that a span is of, in SQL and in words: a phase, a trajectory, a part of one, or a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from otel_rl import semconv
from otel_rl.look.insight.recorded import PHASE
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from otel_rl.semconv.phase_categories import Category

WorkKind = Literal["phase", "trajectory", "model", "tool", "environment", "verifier", "request", "span", "none"]
"""The kind of work: a phase, a trajectory outside of its parts, a part of it, a request to another program, another
span, or nothing that was recorded."""
ENDED = "try(start_unix_nano + duration_ns)"
"""The end of a span, in SQL; null if the sum is too large, as in spans of broken programs."""
OF_TRAJECTORY = f"name IN ('{semconv.SPAN_TRAJECTORY}', '{semconv.SPAN_ROLLOUT}')"
"""Whether a span is a whole trajectory, in SQL."""
_PART = f"{semconv.SPAN_TRAJECTORY}."
OF_PART = f"starts_with(name, '{_PART}')"
"""Whether a span is a part of a trajectory, in SQL."""
KIND = f"""CASE WHEN {OF_TRAJECTORY} THEN 'trajectory' WHEN {OF_PART} THEN name[{len(_PART) + 1}:]
    WHEN phase IS NOT NULL AND {PHASE} THEN 'phase' WHEN resource IS NOT NULL THEN 'request' ELSE 'span' END"""
"""The kind of the work of a span, in SQL."""
TITLE = f"""CASE WHEN phase IS NOT NULL AND {PHASE} THEN phase WHEN {OF_PART} THEN
    coalesce(attributes ->> '$."{semconv.GEN_AI_TOOL_NAME}"', attributes ->> '$."{semconv.TRAJECTORY_PART_NAME}"', '')
    ELSE name END"""
"""The name of the work of a span, in SQL."""


class SpanWork(NamedTuple):
    """A kind of work, and its name, such as that of the phase or of the tool."""

    kind: WorkKind
    name: str

    @property
    def category(self) -> Category:
        """The category of a phase; `other` for other work."""
        return category_of(self.name) if self.kind == "phase" else "other"


NOTHING = SpanWork("none", "")
"""No recorded work: time outside of any phase, or between trajectories."""


def name_of(kind: WorkKind, name: str) -> str:
    """Return a work in words."""
    if kind == "none":
        return f"{name}: nothing recorded" if name else "outside of any phase"
    if kind == "trajectory":
        return "trajectories, outside of their parts"
    return name if kind in ("phase", "span") else f"{kind} {name}".strip()
