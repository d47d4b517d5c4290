"""A resume that lost what was learned: the same steps have other values than before."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.series import spread
from otel_rl.look.insight.troubles import of_metric
from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.series import Floats

_COMPARED, _LEAST = 20, 8
"""Steps on each side of a resume that are compared, at most and at least."""
_SURE = 6.0
"""Standard errors by which the two sides have to differ."""
_LOST = 0.5
"""Part of what was gained since the start that has to be lost."""
_VALUES = "SELECT attempt, step, value FROM rows WHERE name = {name} ORDER BY attempt, step"


def resumed(recorded: RecordedRun) -> list[Finding]:
    """Return the last resume after which the reward is again what it was at the start of the run."""
    name = recorded.main.name("reward")
    if len(recorded.firsts) < 2 or not name:
        return []
    lines = lines_of(recorded.every.sql(_VALUES.format(name=literal(name))))
    of_attempts: dict[int, list[tuple[int, float]]] = {}
    for attempt, step, value in lines:
        if np.isfinite(value):
            of_attempts.setdefault(int(attempt), []).append((int(step), float(value)))
    for (earlier, _, _), (later, first, _) in reversed(list(pairwise(recorded.firsts))):
        old, new = of_attempts.get(earlier, []), of_attempts.get(later, [])
        before = [value for step, value in old if step < first + _COMPARED][-_COMPARED:]
        same = [value for step, value in old if first <= step < first + _COMPARED]
        before = same if len(same) >= _LEAST else before
        found = _lost([value for _, value in old[:_COMPARED]], before, [value for _, value in new[:_COMPARED]])
        if found is not None:
            was, now = found
            text = (
                f"After the resume at step {wording.integer(first)}, reward is {wording.number(now)}; it was"
                f" {wording.number(was)} before: most of what was learned is lost."
            )
            return [_finding(text, name, first, new[-1][0])]
    return []


def _lost(start: list[float], before: list[float], after: list[float]) -> tuple[float, float] | None:
    """Return the levels before and after a resume, if most of what was gained is lost."""
    if min(map(len, (start, before, after))) < _LEAST:
        return None
    levels = [float(np.median(values)) for values in (start, before, after)]
    noise: Floats = np.array([spread(np.diff(values)) for values in (before, after)])
    error = float(np.sqrt(np.square(noise).sum() / min(len(before), len(after)))) + 1e-12
    gained, lost = levels[1] - levels[0], levels[1] - levels[2]
    return (levels[1], levels[2]) if gained > _SURE * error < lost and lost > _LOST * gained else None


def _finding(text: str, name: str, first: int, last: int) -> Finding:
    return Finding(
        kind="learning",
        severity="warning",
        sentence=text,
        advice="Check that the weights of the checkpoint were loaded, into the engine too, and the optimizer's state.",
        sure="likely",
        evidence=Evidence(steps=(first, last), names=(name,), panel="curves"),
        subject=of_metric(name),
    )
