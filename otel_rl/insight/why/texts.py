"""The parts of an answer as texts, as every screen shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording

if TYPE_CHECKING:
    from otel_rl.insight.why.answer import Part, Why

_LEAST = 1e-3
"""The smallest part that is shown, as a fraction of the wall time."""


def shown_parts(why: Why) -> list[Part]:
    """Return the parts that are large enough to be shown."""
    return [one for one in why.parts if max(one.seconds, abs(one.change_seconds)) >= _LEAST * why.seconds]


def numbers_of(part: Part, why: Why) -> tuple[str, str, str, str]:
    """Return its time, its usual time, the change, and the time of the step if the part was as usual."""
    usual, saves = part.usual_seconds, part.saves_seconds
    return (
        wording.seconds(part.seconds),
        "" if usual is None else wording.seconds(usual),
        "" if usual is None else wording.signed_seconds(part.change_seconds),
        "" if saves is None else wording.seconds(why.seconds - saves),
    )
