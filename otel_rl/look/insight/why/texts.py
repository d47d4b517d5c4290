"""The parts of an answer as texts, as every screen shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.why.answer import ExplainedSteps, PathPart

_LEAST = 1e-3
"""The smallest part that is shown, as a fraction of the wall time."""


def shown_parts(explained: ExplainedSteps) -> list[PathPart]:
    """Return the parts that are large enough to be shown."""
    return [
        part for part in explained.parts if max(part.seconds, abs(part.change_seconds)) >= _LEAST * explained.seconds
    ]


def numbers_of(part: PathPart, explained: ExplainedSteps) -> tuple[str, str, str, str]:
    """Return its time, its usual time, the change, and the time of the step if the part was as usual."""
    usual, saves = part.usual_seconds, part.saves_seconds
    return (
        wording.seconds(part.seconds),
        "" if usual is None else wording.seconds(usual),
        "" if usual is None else wording.signed_seconds(part.change_seconds),
        "" if saves is None else wording.seconds(explained.seconds - saves),
    )
