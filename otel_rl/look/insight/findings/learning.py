"""Whether it learns: reward, loss, KL and gradient norm, and the signs of illness that the agent found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.findings.anomalies import certain, tested
from otel_rl.look.insight.series import blocks, correlation, spread
from otel_rl.look.insight.troubles import DIVERGED, NONFINITE, REWARD_PARTS, of_metric
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.order import is_worse

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedEvent, RecordedRun
    from otel_rl.look.insight.series import Floats, Series
    from otel_rl.recorder.facts.order import Severity
    from otel_rl.semconv.main_metrics import Topic

_LEAST_STEPS = 20
_LEAST_STEPS_FLAT = 100
_PART = 0.05
"""Part of a run whose steps are its start and its end."""
_MOST_BLOCKS = 50
_SURE = 4.0
"""Standard errors by which the end has to differ from the start."""
_FLAT = 0.1
"""Part of the whole change within which the reward is flat."""
_FLAT_PART = 0.2
"""Part of the run in which it has to be flat."""
_FALLEN = 0.5
"""Part of its rise that a reward has to lose, to have fallen again."""
_EXPLODED = 10.0
_OTHERS: tuple[Topic, ...] = (
    *("reward", "completion_length", "no_signal"),
    *("log_prob_difference", "probability_difference", "sampler_kl"),
)
"""Metrics about whose changes other findings speak, by rules for the whole run."""
_LABELS: dict[Topic, str] = {"kl": "KL", "gradient_norm": "Gradient norm", "loss": "Loss"}


class _Course(NamedTuple):
    """The course of a series: its start and end, the noise of these two, and its block means with their length."""

    start: float
    end: float
    error: float
    means: list[float]
    length: int

    @property
    def has_changed(self) -> bool:
        """Whether the end differs from the start by more than noise."""
        return abs(self.end - self.start) > _SURE * self.error


def learning(recorded: RecordedRun) -> list[Finding]:
    """Return the course of the reward, what exploded or is not a number, and the agent's signs of illness."""
    others = {name for topic in _OTHERS for name in recorded.main.by_topic.get(topic, ())}
    name, series = recorded.of_topic("reward")
    reward = _reward(name, series.finite)
    return [
        *_nonfinite(recorded),
        *_exploded(recorded),
        *certain(recorded),
        *(part for rise in reward for part in _fallen_parts(recorded, rise)),
        *reward,
        *tested(recorded, others),
    ]


def _reward(name: str, series: Series) -> list[Finding]:
    if len(series.values) < _LEAST_STEPS:
        return []
    course = _course(series)
    label = "Reward"
    first, last = int(series.steps[0]), int(series.steps[-1])
    if not course.has_changed:
        if len(series.values) < _LEAST_STEPS_FLAT:
            return []
        text = (
            f"{label} did not change in {wording.count(len(series.values), 'step')}:"
            f" {wording.number(course.start)} at the start, {wording.number(course.end)} at the end"
        )
        advice = "Look at samples: is a right answer rewarded, and are there groups with different rewards?"
        return [_finding("warning", text, advice, name, (first, last), likely=True)]
    rises = course.end > course.start
    top = max(range(len(course.means)), key=lambda n: course.means[n])
    best = course.means[top]
    fell = best - course.end > max(_FALLEN * (best - course.start), _SURE * course.error)
    if fell:
        at = int(series.steps[min(len(series.steps) - 1, top * course.length + course.length // 2)])
        when = wording.integer(at)
        text = f"{label} fell from {wording.number(best)} at about step {when} to {wording.number(course.end)}"
        advice = f"Look at KL, entropy and gradient norm from step {when} on; resume from a checkpoint before."
        return [_finding("bad" if not rises else "warning", text, advice, name, (at, last), likely=True)]
    text = f"{label} {wording.number(course.start)} → {wording.number(course.end)}"
    flat = _flat_since(course)
    if flat is not None and rises and len(series.values) >= _LEAST_STEPS_FLAT:
        since = int(series.steps[flat * course.length])
        text += f", flat since step {wording.integer(since)}"
        advice = "If it is as good as it can be, stop here; otherwise try harder prompts."
        return [_finding("note", text, advice, name, (since, last), likely=True)]
    if rises:
        return [_finding("good", text, "", name, (first, last), likely=True)]
    advice = "Check the sign of the reward and of the advantages, and the learning rate."
    return [_finding("warning", text, advice, name, (first, last), likely=True)]


def _fallen_parts(recorded: RecordedRun, reward: Finding) -> list[Finding]:
    """Return the parts of a reward that fell while it rose."""
    if is_worse(reward.severity, "note"):  # it did not rise
        return []
    fallen: dict[str, _Course] = {}
    for name in recorded.main.by_topic.get("reward_components", ()):
        series = recorded.series(name).finite
        if len(series.values) >= _LEAST_STEPS and (course := _course(series)).has_changed and course.end < course.start:
            fallen[name] = course
    if not fallen:
        return []
    parts = [f"{name} fell {wording.number(part.start)} → {wording.number(part.end)}" for name, part in fallen.items()]
    text = f"{reward.sentence.removesuffix('.')}, while {wording.names(parts)}"
    advice = "If what fell is the aim, raise its weight, or cap the other parts; look at samples."
    finding = _finding("warning", text, advice, next(iter(fallen)), reward.evidence.steps or (0, 0), likely=True)
    return [replace(finding, subject=REWARD_PARTS, covers=(reward.subject, *map(of_metric, fallen)))]


def _course(series: Series) -> _Course:
    values = series.values
    window = max(5, round(_PART * len(values)))
    head, tail = values[:window], values[-window:]
    # A difference of two values has twice the variance of one; a slope of the series is not in it.
    noise = spread(np.diff(values)) / math.sqrt(2)
    phi = min(0.95, max(0.0, correlation(_detrended(values))))
    noise *= 1 / math.sqrt(max(0.05, 1 - phi))  # differences of neighbors show less of correlated noise
    error = noise * math.sqrt(2 / window * (1 + phi) / (1 - phi))
    means, length = blocks(values, _MOST_BLOCKS)
    return _Course(float(np.median(head)), float(np.median(tail)), error, means.tolist(), length)


def _detrended(values: Floats) -> Floats:
    """Return values less the means of the blocks around them."""
    length = max(10, len(values) // 20)
    kernel = np.ones(length) / length
    padded = np.pad(values, (length // 2, length - 1 - length // 2), mode="edge")
    smooth: Floats = np.convolve(padded, kernel, mode="valid")
    return values - smooth


def _flat_since(course: _Course) -> int | None:
    """Return the first block from which on the means stay near the end; `None` if they do so for too short a time."""
    means = np.asarray(course.means)
    quarter = means[-max(3, len(means) // 4) :]
    little = _FLAT * abs(course.end - course.start)
    near = max(little, 3 * spread(np.diff(quarter)) / math.sqrt(2))
    away = np.flatnonzero(np.abs(means - quarter.mean()) > near)
    begin = int(away[-1]) + 1 if len(away) else 0
    while len(later := means[begin:]) >= max(4, _FLAT_PART * len(means)):
        half = len(later) // 2
        if 4 * abs(float(later[half:].mean() - later[:half].mean())) <= little:  # twice what a line would change
            return begin
        begin += 1
    return None


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
    """Return a KL, gradient norm or loss that ends far above all that it usually was."""
    for topic, label in _LABELS.items():
        name, series = recorded.of_topic(topic)
        series = series.finite
        count = len(series.values)
        if count < _LEAST_STEPS:
            continue
        sizes = np.abs(series.values)
        skipped = max(1, count // 50)  # a warm-up
        usual = sizes[skipped : max(skipped + 5, count // 2)]
        middle, top = float(np.median(usual)), float(np.quantile(usual, 0.99))
        end = float(np.median(sizes[-max(5, count // 50) :]))
        if end <= _EXPLODED * middle or end <= 3 * top or end < 1e-3:
            continue
        low = np.flatnonzero(sizes <= max(top, _EXPLODED * middle / 2))
        at = int(series.steps[min(count - 1, int(low[-1]) + 1)])
        text = (
            f"{label} rose to {wording.number(end)} since step {wording.integer(at)} ({wording.number(middle)} before)"
        )
        advice = "The training diverges: lower the learning rate, and resume from a checkpoint before."
        finding = _finding("bad", text, advice, name, (at, int(series.steps[-1])), likely=True)
        return [replace(finding, covers=(DIVERGED,))]
    return []


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
