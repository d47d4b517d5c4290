"""A contradiction: what was recorded that cannot be, three rows that show it, and where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.order import Severity
from otel_rl.recorder.facts.states import Sure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.contradictions.columns import AlignedRows

_SHOWN = 3


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded facts of which one is wrong, or that a parameter explains."""

    sentence: str  # the facts, with numbers
    advice: str  # what to check
    names: tuple[str, ...]  # the columns that show it, the one in doubt first
    steps: tuple[int, int]  # the first and the last step that show it
    rows: tuple[str, ...] = ()  # three rows, in words
    severity: Severity = "warning"
    sure: Sure = "certain"
    subject: str = ""  # as of a finding; the column in doubt by default
    covers: tuple[str, ...] = ()  # columns of which other findings say what this one explains


def of_rows(
    names: Sequence[str], rows: AlignedRows, sentence: str, advice: str, severity: Severity = "warning"
) -> Contradiction:
    """Return a contradiction in these rows, of which the first, the middle and the last one are shown."""
    count = len(rows.steps)
    shown = sorted({0, count // 2, count - 1})[:_SHOWN]
    return Contradiction(
        sentence=sentence,
        advice=advice,
        names=tuple(names),
        steps=(int(rows.steps[0]), int(rows.steps[-1])),
        rows=tuple(
            f"Step {wording.integer(int(rows.steps[at]))}: "
            + ", ".join(f"{name} {wording.number(float(v[at]))}" for name, v in zip(names, rows.values, strict=True))
            for at in shown
        ),
        severity=severity,
    )
