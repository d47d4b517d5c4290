"""Whether it learns: loss, KL and gradient norm, and the signs of illness that the agent found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.look.insight.course import LEAST_STEPS, course_of, fall_of
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.findings.anomalies import certain, tested
from otel_rl.look.insight.findings.policy_signs import signs_of_policy
from otel_rl.look.insight.troubles import DIVERGED, NONFINITE, REWARD_PARTS, of_metric
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedEvent, RecordedRun
    from otel_rl.look.insight.series import Series
    from otel_rl.recorder.facts.order import Severity
    from otel_rl.semconv.main_metrics import Topic

_EXPLODED = 10.0
_USUAL_PARTS = (0.5, 0.25)
"""Parts of a run from its begin that are usual: the half, or a quarter if it exploded before that."""
_ADVANTAGES = re.compile(r"(?:.*/)?advantages?[/_]max")
_RATE = re.compile(r"(?:^|/)(?:actor/)?(?:lr|learning_rate)$")
_WARM_UP, _RAISED = 20, 3.0
"""Steps that are compared, and how many times as large a learning rate has become that has risen much."""
_SMALL = 1.0
"""A KL, gradient norm or loss below this has not exploded, unless the reward fell."""
_OTHERS: tuple[Topic, ...] = (
    *("reward", "completion_length", "no_signal"),
    *("log_prob_difference", "probability_difference", "sampler_kl"),
)
"""Metrics about whose changes other findings speak, by rules for the whole run."""
_LABELS: dict[Topic, str] = {"kl": "KL", "gradient_norm": "Gradient norm", "loss": "Loss"}


def learning(recorded: RecordedRun) -> list[Finding]:
    """Return what exploded or is not a number, and the agent's signs of illness."""
    others = {name for topic in _OTHERS for name in recorded.main.by_topic.get(topic, ())}
    return [
        *_nonfinite(recorded),
        *_exploded(recorded),
        *signs_of_policy(recorded),
        *certain(recorded),
        *tested(recorded, others),
    ]


def _nonfinite(recorded: RecordedRun) -> list[Finding]:
    """Return the first loss or gradient norm that is not finite, by the agent's events."""
    events = [event for event in recorded.events_of(semconv.EVENT_NUMERICS_NONFINITE) if event.step is not None]
    if not events:
        return []
    metrics = [*recorded.main.names, *sorted({_metric(event) for event in events})]
    first = min(events, key=lambda one: (one.step or 0, one.time_unix_nano, one.rank or 0, metrics.index(_metric(one))))
    name = _metric(first)
    value = str(first.attributes.get(semconv.VALUE, "nan"))
    step = first.step or 0
    who = f" on {recorded.rank_text(first.rank or 0, first.role, first.host)}" if recorded.ranks > 1 else ""
    later = recorded.series(name)
    after = later.between(step, int(later.steps[-1])) if later else later
    stays = len(after.values) > 1 and not np.isfinite(after.values).any()
    spelled = {"nan": "NaN", "inf": "infinite", "-inf": "negative infinite"}.get(value, value)
    text = f"{name} is {spelled} since step {wording.integer(step)}{who}"
    if not stays:
        text = f"{name} was {spelled} in step {wording.integer(step)}{who}"
    others = {_metric(event) for event in events} - {name}
    rest = f", then {wording.names(sorted(others))}" if others else ""
    advice = "Resume from a checkpoint before; clip gradients, and look for empty batches and log(0)."
    names = (name, *sorted(others))
    finding = _finding("bad" if stays else "warning", f"{text}{rest}", advice, name, (step, step))
    ranks = () if first.rank is None else (first.rank,)
    evidence = replace(finding.evidence, ranks=ranks, role=first.role, names=names)
    return [replace(finding, evidence=evidence, subject=NONFINITE, covers=tuple(map(of_metric, names)))]


def _metric(event: RecordedEvent) -> str:
    return str(event.attributes.get(semconv.METRIC_NAME, ""))


def _exploded(recorded: RecordedRun) -> list[Finding]:
    """Return a KL, gradient norm or loss that ends far above all that it usually was, and what did so with it."""
    named = [(label, recorded.of_topic(topic)) for topic, label in _LABELS.items()]
    named += [(name, (name, recorded.series(name))) for name in recorded.names if _ADVANTAGES.fullmatch(name)]
    found: list[tuple[str, str, float, float, int]] = []
    for label, (name, known) in named:
        explosion = next(filter(None, (_explosion(known.finite, part) for part in _USUAL_PARTS)), None)
        if explosion is not None and (explosion[1] >= _SMALL or _has_fallen(recorded)):
            found.append((label, name, *explosion))
    if not found:
        return []
    (label, name, middle, end, at), *others = found
    text = f"{label} rose to {wording.number(end)} since step {wording.integer(at)} ({wording.number(middle)} before)"
    rest = [
        f"{other} to {wording.number(high)} since step {wording.integer(step)}" for other, _, _, high, step in others
    ]
    also = f", {wording.names(rest)}" if rest else ""
    advice = "The training diverges: lower the learning rate, and resume from a checkpoint before."
    steps = (at, int(recorded.series(name).steps[-1]))
    finding = _finding("bad", f"{text}{also}{_raised_rate(recorded, at)}", advice, name, steps, likely=True)
    return [replace(finding, covers=(DIVERGED, *(of_metric(other) for _, other, *_ in others)))]


def _explosion(series: Series, part: float) -> tuple[float, float, int] | None:
    """Return the usual size of a series in its first part, that of its end, and the step since which it is so large."""
    count = len(series.values)
    if count < LEAST_STEPS:
        return None
    sizes = np.abs(series.values)
    skipped = max(1, count // 50)  # a warm-up
    usual = sizes[skipped : max(skipped + 5, int(count * part))]
    middle, top = float(np.median(usual)), float(np.quantile(usual, 0.99))
    end = float(np.median(sizes[-max(5, count // 50) :]))
    if end <= _EXPLODED * middle or end <= 3 * top or end < 1e-3:
        return None
    low = np.flatnonzero(sizes <= max(top, _EXPLODED * middle / 2))
    return middle, end, int(series.steps[min(count - 1, int(low[-1]) + 1)])


def _raised_rate(recorded: RecordedRun, at: int) -> str:
    """Return that the learning rate had risen much until a step, in words; a short warm-up has ended long before."""
    name = next((name for name in recorded.names if _RATE.search(name)), "")
    series = recorded.series(name).finite if name else None
    if not series or not len(series.values):
        return ""
    first, then = float(series.values[:_WARM_UP].max()), series.between(at - _WARM_UP, at + _WARM_UP).median
    if not then > _RAISED * first > 0:
        return ""
    return f", while {name} rose {wording.number(first)} → {wording.number(then)}"


def _has_fallen(recorded: RecordedRun) -> bool:
    series = recorded.of_topic("reward")[1].finite
    return len(series.values) >= LEAST_STEPS and fall_of(series, course_of(series)) is not None


def _finding(
    severity: Severity, text: str, advice: str, name: str, steps: tuple[int, int], *, likely: bool = False
) -> Finding:
    return Finding(
        kind="learning",
        severity=severity,
        sentence=f"{text}.",
        advice=advice,
        sure="likely" if likely else "certain",
        evidence=Evidence(steps=steps, names=(name,), panel="curves"),
        subject=of_metric(name),
        needs=(REWARD_PARTS,),
    )
