"""Completions: phrases that earn a reward, faults, samples to blame, tokens that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.samples.read_samples import held_by, sampled
from otel_rl.look.insight.samples.remarks.collect import remarks
from otel_rl.look.insight.samples.remarks.loss_shares import ORDER, blame_of, remark_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.samples.remarks.loss_shares import By
    from otel_rl.look.insight.samples.remarks.remark import Remark
    from otel_rl.semconv.main_metrics import Topic

_OF_LOSS: tuple[Topic, ...] = ("loss", "gradient_norm")
_OF_GAP: tuple[Topic, ...] = ("kl", "log_prob_difference", "probability_difference", "sampler_kl")
_JUMPS = ("spike", "burst")
_BEFORE = 10
"""Steps before the end of a burst, among which is the one that made it."""
_MOST = 2
"""Spikes that are looked at, the last ones."""


def texts(recorded: RecordedRun) -> list[Finding]:
    """Return what samples say, with the most frequent phrase that pays, and which ones are to blame for a spike."""
    remarked = remarks(recorded.run, sampled(recorded.run, held_by(recorded.run)))
    return [
        Finding(
            kind=remark.kind,
            severity=remark.severity,
            sentence=remark.sentence,
            advice=remark.advice,
            sure=remark.sure,
            evidence=Evidence(steps=remark.steps, panel="data"),
            subject=remark.subject,
        )
        for remark in [*_blamed(recorded), *remarked.of_phrases[:1], *remarked.others]
    ]


def _blamed(recorded: RecordedRun) -> list[Remark]:
    """Return the samples to blame for the first value that is not a number, and for the last spikes."""
    steps = dict(_broken(recorded)) or dict(list(_jumps(recorded))[-_MOST:])
    blames = (blame_of(recorded.run, step, order) for step, order in steps.items())
    return [remark_of(blame) for blame in blames if blame is not None]


def _broken(recorded: RecordedRun) -> Iterator[tuple[int, tuple[By, ...]]]:
    events = recorded.events_of(semconv.EVENT_NUMERICS_NONFINITE)
    steps = [event.step for event in events if event.step is not None]
    if steps:
        yield min(steps), ORDER


def _jumps(recorded: RecordedRun) -> Iterator[tuple[int, tuple[By, ...]]]:
    """Yield the steps of spikes and bursts, and by which number samples are blamed first."""
    names = {topic: recorded.main.by_topic.get(topic, ()) for topic in (*_OF_LOSS, *_OF_GAP)}
    for event in recorded.events_of(semconv.EVENT_TRAINING_ANOMALY):
        metric = str(event.attributes.get(semconv.METRIC_NAME, ""))
        topic = next((topic for topic, known in names.items() if metric in known), None)
        if topic is None or event.step is None or event.attributes.get(semconv.ANOMALY_KIND) not in _JUMPS:
            continue
        series = recorded.series(metric).finite.between(event.step - _BEFORE + 1, event.step)
        if series:
            step = int(series.steps[np.argmax(np.abs(series.values - np.median(series.values)))])
            yield step, tuple(sorted(ORDER, key=lambda by: by != "gap")) if topic in _OF_GAP else ORDER
