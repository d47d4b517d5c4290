"""Signs of illness that the agent found in rows: facts, and tests whose change has lasted to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.troubles import NONFINITE, of_metric
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.series import Series

_RECENT = 20
_LEAST = 5
"""Steps at the end in which a fact must hold."""
_TESTS = ("rise", "fall", "regression")
"""Changes that a test found. Bursts and spikes pass, and are in the list of events alone."""
_ADVICE = {
    "collapse": "The policy no longer explores: raise the clip bound, add an entropy bonus, lower the learning rate.",
    "constant": "Its coefficient is above 0: check that it is computed, and from the current policy.",
    "bound": "Look at samples: completions that are all cut off, or groups whose rewards are all equal, teach nothing.",
    "outside": "The metric is not what its name says: check its unit, and what it is divided by.",
    "sum": "Check the weights, and reward functions that return nothing for some samples.",
    "hidden_nan": "Set logging_nan_inf_filter=False to see it; clip gradients, and look for empty batches and log(0).",
    "rise": "Compare samples from before and after; look at what else changed in that step.",
    "fall": "Compare samples from before and after; look at what else changed in that step.",
    "regression": "Take the checkpoint before; look at samples of the evaluation.",
}


_ADVICE_ON_REWARD = {
    "constant": "Look at samples: the verifier may say the same of every answer.",
    "fall": "Look at KL, entropy and gradient norm from that step on; resume from a checkpoint before.",
}
"""Advice on the reward, which other metrics do not get."""


class _Sign(NamedTuple):
    kind: str
    metric: str
    step: int
    value: float
    usual: float
    evidence: str


def certain(recorded: RecordedRun) -> list[Finding]:
    """Return the facts: what holds up to the end of the run, and what cannot be right."""
    findings: list[Finding] = []
    for sign in _last(recorded):
        if sign.kind in _ADVICE and sign.kind not in _TESTS and (since := _since(sign, recorded)) is not None:
            sentence = f"{sign.metric} {_now(sign)}, since step {wording.integer(since)}."
            findings.append(_finding(sign, sentence, since, recorded))
    return findings


def tested(recorded: RecordedRun, others: Collection[str]) -> list[Finding]:
    """Return the changes that tests found and that have lasted, but of metrics that other findings judge."""
    findings: list[Finding] = []
    for sign in _last(recorded):
        if sign.kind in _TESTS and sign.metric not in others and _lasts(sign, recorded.series(sign.metric).finite):
            sentence = f"{sign.metric} {sign.evidence}, at step {wording.integer(sign.step)}."
            findings.append(_finding(sign, sentence, sign.step, recorded))
    return findings


def _last(recorded: RecordedRun) -> list[_Sign]:
    """Return the last sign of each kind in each metric."""
    signs: dict[tuple[str, str], _Sign] = {}
    for event in recorded.events_of(semconv.EVENT_TRAINING_ANOMALY):
        attributes = event.attributes
        kind, metric = str(attributes.get(semconv.ANOMALY_KIND, "")), str(attributes.get(semconv.METRIC_NAME, ""))
        try:
            value, usual = float(attributes[semconv.ANOMALY_VALUE]), float(attributes[semconv.ANOMALY_USUAL])
        except (KeyError, TypeError, ValueError):  # a sender's own, or a number that JSON has not
            continue
        signs[kind, metric] = _Sign(
            kind, metric, event.step or 0, value, usual, str(attributes.get(semconv.ANOMALY_EVIDENCE))
        )
    return [*signs.values()]


def _since(sign: _Sign, recorded: RecordedRun) -> int | None:
    """Return the step since which a fact holds; `None` if it no longer does. An impossible value stays worth a line."""
    series = recorded.series(sign.metric)
    values = series.values
    if sign.kind == "constant":
        differs = values != sign.value
    elif sign.kind == "collapse":
        differs = values >= sign.usual / 10
    elif sign.kind == "bound":
        differs = values < 0.99 * sign.usual
    else:
        return sign.step
    away = np.flatnonzero(differs)
    begin = int(away[-1]) + 1 if len(away) else 0
    return int(series.steps[begin]) if len(values) - begin >= _LEAST else None


def _lasts(sign: _Sign, series: Series) -> bool:
    """Return whether the last values are nearer to the new value than to the usual one, or beyond it."""
    last = series.tail(_RECENT).median
    middle = (sign.value + sign.usual) / 2
    return last > middle if sign.value > sign.usual else last < middle


def _now(sign: _Sign) -> str:
    return (
        f"is exactly {wording.number(sign.value)}" if sign.kind == "constant" else sign.evidence.partition(" for ")[0]
    )


def _finding(sign: _Sign, sentence: str, since: int, recorded: RecordedRun) -> Finding:
    is_reward = sign.metric == recorded.main.name("reward")
    return Finding(
        kind="learning",
        severity="note" if sign.kind in _TESTS and sign.kind != "regression" else "warning",
        sentence=sentence,
        advice=(_ADVICE | _ADVICE_ON_REWARD if is_reward else _ADVICE)[sign.kind],
        sure="likely" if sign.kind in _TESTS else "certain",
        evidence=Evidence(steps=(since, max(since, sign.step)), names=(sign.metric,), panel="curves"),
        subject=NONFINITE if sign.kind == "hidden_nan" else of_metric(sign.metric),
    )
