"""Engine and trainer: their weights of the same version, and their probabilities of the same tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.shifts import shifts
from otel_rl.look.insight.troubles import ENGINE_GAP, WEIGHTS
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedEvent, RecordedRun
    from otel_rl.recorder.facts.order import Severity
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


_ADVICE_ON_WEIGHTS = (
    "Look at the weight sync of this tensor: names, shards, an adapter that is not merged, a sync that ended early."
)
_TICKETS = " Tickets that name version {} were sampled by version {}: they are staler than shown."
_ADVICE_ON_ROUNDING = "Samples cannot prove the engine's version. Compare log-probabilities, or raise the precision."


def mismatch(recorded: RecordedRun) -> list[Finding]:
    """Return that engine and trainer hold different weights, or that their probabilities differ."""
    return [*_weights(recorded), *_probabilities(recorded)]


def _weights(recorded: RecordedRun) -> list[Finding]:
    """Return the first divergence of weights, with the number of processes; else that rounding hides changes."""
    of_last = (member for member in recorded.members if member.attempt == recorded.last_attempt)
    began = min((member.started_unix_nano for member in of_last), default=0)
    diverged, hidden = (
        [event for event in recorded.events_of(name) if event.time_unix_nano >= began]
        for name in (semconv.EVENT_POLICY_DIVERGED, semconv.EVENT_POLICY_ROUNDED)
    )
    if diverged:
        first = diverged[0]
        version, holds = (first.attributes.get(name) for name in (semconv.POLICY_VERSION, semconv.WEIGHTS_HELD_VERSION))
        tickets = "" if holds is None else _TICKETS.format(version, holds)
        return [_of_weights(first, diverged, "bad", f"{_ADVICE_ON_WEIGHTS}{tickets}")]
    return [_of_weights(hidden[0], hidden, "note", _ADVICE_ON_ROUNDING)] if hidden else []


def _of_weights(first: RecordedEvent, events: list[RecordedEvent], severity: Severity, advice: str) -> Finding:
    message = str(first.attributes.get(semconv.WEIGHTS_MESSAGE, ""))
    others = len({(event.role, event.rank) for event in events}) - 1
    rest = f"; so it is with {wording.count(others, 'other process', 'other processes')}" if others else ""
    return Finding(
        kind="mismatch",
        severity=severity,
        sentence=f"{wording.capitalized(message)}{rest}.",
        advice=advice,
        evidence=Evidence(
            steps=None if first.step is None else (first.step, first.step),
            ranks=() if first.rank is None else (first.rank,),
            role=first.role,
            panel="events",
        ),
        subject=WEIGHTS,
        covers=(ENGINE_GAP,) if severity == "bad" else (),
    )


def _probabilities(recorded: RecordedRun) -> list[Finding]:
    """Return that probabilities differ more than before, or much, by the first metric that shows it."""
    for topic, text, worth, much in _KINDS:
        name, series = recorded.of_topic(topic)
        series = series.finite
        if len(series.values) < _LEAST_STEPS:
            continue
        sizes = series._replace(values=abs(series.values))
        last = int(series.steps[-1])
        # Logarithms of values near 0 are so noisy that a slow rise is not seen in them.
        changes = [*shifts(sizes, worth, relative=False), *shifts(sizes, _DOUBLED)]
        grown = [shift for shift in changes if shift.after >= max(worth, (1 + _DOUBLED) * shift.before)]
        if (shift := next((shift for shift in grown if shift.last == last), None)) is not None:
            since = f"since step {wording.integer(shift.step)} ({wording.number(shift.before)} before)"
            sentence = f"{text.format(wording.number(shift.after))} {since}."
            return [_finding(sentence, "warning", name, (shift.step, last))]
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
        subject=ENGINE_GAP,
    )
