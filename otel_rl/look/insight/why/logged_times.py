"""Why steps were slow in a run without spans, by the times of phases that the trainer logged."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.phases import logged_phases
from otel_rl.look.insight.why.slow_steps import StepWall, slow_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.recorded import RecordedRun

_WARM_UP_STEPS = 1
_EXPLAINS = 0.5
"""Share of what a step takes longer that a phase has to take longer, to be named."""
_MOST_NAMED = 4


class _SlowStep(NamedTuple):
    """A slow step: its number, its time, and that of a phase, in seconds."""

    step: int
    seconds: float
    of_phase: float


def slow_by_logged(recorded: RecordedRun) -> list[Finding]:
    """Return which steps were slow because of which phase, the most time first."""
    times = recorded.step_times.finite
    walls = [StepWall(int(step), 0, round(seconds * 1e9)) for step, seconds in zip(*times, strict=True)]
    slow = slow_of(walls[_WARM_UP_STEPS:])
    if not slow:
        return []
    usual = float(np.median([wall.seconds for wall in walls]))
    phases = {name: recorded.series(name).finite for name in logged_phases(recorded)}
    of_phase: dict[str, list[_SlowStep]] = defaultdict(list)
    for wall in slow:
        at = wall.step
        known = {name: float(series.between(at, at).values.sum()) for name, series in phases.items()}
        longer = {name: seconds - phases[name].median for name, seconds in known.items()}
        most = max(longer, key=longer.__getitem__, default="")
        if most and longer[most] >= _EXPLAINS * (wall.seconds - usual):
            of_phase[most].append(_SlowStep(at, wall.seconds, known[most]))
    ordered = sorted(of_phase.items(), key=lambda item: -sum(step.of_phase for step in item[1]))
    return [_finding(name, steps, usual, phases[name].median) for name, steps in ordered]


def _finding(name: str, slow: Sequence[_SlowStep], usual: float, of_phase: float) -> Finding:
    numbers = [wording.integer(one.step) for one in sorted(slow)]
    who = f"Step {numbers[0]}" if len(slow) == 1 else f"Steps {wording.names(numbers, _MOST_NAMED)}"
    took, part = (wording.seconds(float(np.median(times))) for times in zip(*(one[1:] for one in slow), strict=True))
    usually, of_usual = wording.seconds(usual), wording.seconds(of_phase)
    steps = sorted(one.step for one in slow)
    return Finding(
        kind="change",
        severity="note",
        sentence=f"{who} took {took}, usually {usually}: {name} took {part}, usually {of_usual}.",
        sure="likely",
        evidence=Evidence(steps=(steps[0], steps[-1]), names=(name,), panel="curves"),
    )
