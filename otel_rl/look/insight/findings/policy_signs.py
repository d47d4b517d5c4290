"""Signs of a policy or a critic that is ill, which no test of single steps sees: they come slowly, or were there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.course import LEAST_STEPS, course_of, fall_of
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.troubles import of_metric
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun

_SHORT, _TOKENS = 8.0, 32.0
"""How many times shorter collapsed completions are, and the tokens that they have in the end, at most."""
_EXPLAINED = re.compile(r"(?:.*/)?(?:vf_)?explained_var(?:iance)?", re.IGNORECASE)
_LEAST_EXPLAINED, _BELOW, _MOSTLY = 50, -0.1, 0.9
"""Steps until a critic has to be better than nothing, the share of variance below which it is worse, and how often."""


def signs_of_policy(recorded: RecordedRun) -> list[Finding]:
    """Return completions that collapsed to a few tokens, and a critic that is worse than none."""
    return [*_collapsed(recorded), *_misled(recorded)]


def _collapsed(recorded: RecordedRun) -> list[Finding]:
    name, series = recorded.of_topic("completion_length")
    series = series.finite
    if len(series.values) < LEAST_STEPS or "ep" in name.lower().split("_"):
        return []
    fall = fall_of(series, course_of(series))
    if fall is None or not 0 <= fall.after < min(_TOKENS, fall.before / _SHORT):
        return []
    where = f"between steps {wording.integer(fall.first)} and {wording.integer(fall.last)}"
    text = f"{name} fell {wording.number(fall.before)} → {wording.number(fall.after)} {where}: completions collapsed."
    advice = "Read samples: the policy ends at once, or pays for short answers are too high. Resume from before."
    return [_finding(text, advice, name, (fall.first, int(series.steps[-1])))]


def _misled(recorded: RecordedRun) -> list[Finding]:
    for name in (name for name in recorded.names if _EXPLAINED.fullmatch(name)):
        series = recorded.series(name).finite
        late = series.values[-(len(series.values) // 3) :]
        if len(series.values) < _LEAST_EXPLAINED or not (late < 0).mean() > _MOSTLY or np.median(late) >= _BELOW:
            continue
        since = int(series.steps[-len(late)])
        text = f"{name} is {wording.number(float(np.median(late)))}: the critic is worse than the mean of the returns."
        advice = "Check its learning rate, its targets and their scale. Advantages from it are noise."
        return [_finding(text, advice, name, (since, int(series.steps[-1])))]
    return []


def _finding(text: str, advice: str, name: str, steps: tuple[int, int]) -> Finding:
    return Finding(
        kind="learning",
        severity="warning",
        sentence=text,
        advice=advice,
        sure="likely",
        evidence=Evidence(steps=steps, names=(name,), panel="curves"),
        subject=of_metric(name),
    )
