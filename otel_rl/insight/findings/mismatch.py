"""Engine and trainer: their probabilities of the same tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.insight.facts import Evidence, Finding
from otel_rl.insight.shifts import shifts

if TYPE_CHECKING:
    from otel_rl.insight.facts import Severity
    from otel_rl.insight.recorded import Recorded
    from otel_rl.semconv.main_metrics import Topic

_LEAST_STEPS = 5
_RECENT_STEPS = 100
_DOUBLED = 1.0
"""The smallest growth that is reported, as a fraction of the level before."""
_KINDS: tuple[tuple[Topic, str, float, float], ...] = (
    ("log_prob_difference", "Log-probabilities of engine and trainer differ by {}", 0.02, 0.1),
    ("probability_difference", "Probabilities of engine and trainer differ by {}", 0.01, 0.05),
    ("sampler_kl", "The KL divergence between engine and trainer is {}", 0.01, 0.1),
)
"""Metrics, the sentence, from which value on a growth is worth a line, and from which on any value is."""
_ADVICE = (
    "Look at the last change of weights or of the engine: dtype, quantization, kernels, a sync that failed."
    " Correct with importance weights meanwhile."
)


def mismatch(recorded: Recorded) -> list[Finding]:
    """Return that engine and trainer differ more than before, or much, by the first metric that shows it."""
    for topic, text, worth, much in _KINDS:
        name, series = recorded.of(topic)
        series = series.finite
        if len(series.values) < _LEAST_STEPS:
            continue
        sizes = series._replace(values=abs(series.values))
        grown = [one for one in shifts(sizes, _DOUBLED) if one.after > one.before and one.after >= worth]
        last = int(series.steps[-1])
        if grown and grown[-1].last == last:
            one = grown[-1]
            since = f"since step {wording.integer(one.step)} ({wording.number(one.before)} before)"
            sentence = f"{text.format(wording.number(one.after))} {since}."
            return [_finding(sentence, "warning", name, (one.step, last))]
        level = sizes.tail(_RECENT_STEPS).median
        if level >= much:
            return [_finding(f"{text.format(wording.number(level))}.", "note", name, (int(series.steps[0]), last))]
    return []


def _finding(sentence: str, severity: Severity, name: str, steps: tuple[int, int]) -> Finding:
    return Finding(
        kind="mismatch",
        severity=severity,
        sentence=sentence,
        advice=_ADVICE,
        sure="likely",
        evidence=Evidence(steps=steps, names=(name,), panel="curves"),
    )
