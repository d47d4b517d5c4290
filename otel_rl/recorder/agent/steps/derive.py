"""Metrics that are derived from others: rates, time per token, FLOP/s, model FLOPs utilization, perplexity.

A metric that the trainer logged, under any name that its dialect knows, is not derived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.recorder.stats import efficiency
from otel_rl.semconv import registry
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.recorder.settings.settings import Flops
    from otel_rl.semconv.dialect import Reading

_OF_DEVICE = {"device", "gap"}
_LOG_LIKELIHOOD_LOSSES = ("sft", "nll")


class Step(msgspec.Struct, frozen=True):
    """The measurements of a step: seconds of the rank that took longest (0 if unknown), and tokens of all ranks."""

    seconds: float
    phases: dict[str, float]
    tokens: dict[str, float]
    devices: int
    parts: dict[str, dict[str, float]] = {}
    have_gpus: bool = True  # else nothing is said per GPU


def derived(
    values: Mapping[str, float], step: Step, model: Flops, read: Callable[[str], Reading | None]
) -> dict[str, float]:
    """Return the metrics that follow from the values of a row and the measurements of its step, by name."""
    known = {reading.metric: value * reading.factor for name, value in values.items() if (reading := read(name))}
    columns = _times(step)
    if step.seconds > 0:
        columns[STEP_TIME] = step.seconds
        columns["perf/steps_per_second"] = 1 / step.seconds
    for phase, tokens in step.tokens.items():
        if tokens > 0 and (seconds := step.phases.get(phase, 0.0)) > 0:
            columns[f"perf/{phase}/tokens_per_second"] = efficiency.rate(tokens, seconds)
            if step.have_gpus:
                columns[f"perf/{phase}/tokens_per_second_per_gpu"] = efficiency.rate(tokens, seconds, step.devices)
            columns[f"time_per_token/{phase}"] = efficiency.time_per_token(seconds, tokens)
    tokens = known.get(semconv.METRIC_TRAIN_STEP_TOKENS) or _trained_on(step.tokens)
    if tokens and step.seconds > 0:
        columns["perf/tokens_per_second"] = efficiency.rate(tokens, step.seconds)
        if step.have_gpus:
            columns["perf/tokens_per_second_per_gpu"] = efficiency.rate(tokens, step.seconds, step.devices)
    flops = known.get(semconv.METRIC_TRAIN_FLOPS) or tokens * (
        model.per_token or efficiency.training_flops(model.parameters, 1)
    )
    if flops and step.seconds > 0:
        columns["perf/tflops_per_gpu"] = efficiency.rate(flops, step.seconds, step.devices) / 1e12
        if model.peak:
            columns["perf/mfu"] = efficiency.model_flops_utilization(flops, step.seconds, step.devices, model.peak)
    columns |= _perplexities(values, read)
    return {name: value for name, value in columns.items() if name not in values and not _is_told(name, known, read)}


def _times(step: Step) -> dict[str, float]:
    """Return the seconds of phases; as in ROLL, a phase that loads and unloads states has a total."""
    values: dict[str, float] = {}
    for phase, seconds in step.phases.items():
        parts = step.parts.get(phase, {})
        values[f"time/{phase}/total" if parts.keys() - _OF_DEVICE else f"time/{phase}"] = seconds
        values |= {f"time/{phase}/{part}": of_part for part, of_part in parts.items()}
    return values


def _is_told(name: str, known: Mapping[str, float], read: Callable[[str], Reading | None]) -> bool:
    reading = read(name)
    return reading is not None and not reading.attributes and reading.metric in known


def _trained_on(tokens: Mapping[str, float]) -> float:
    return max((n for phase, n in tokens.items() if registry.stages().get(phase) == "train"), default=0.0)


def _perplexities(values: Mapping[str, float], read: Callable[[str], Reading | None]) -> dict[str, float]:
    """Return exp(loss) for losses that are mean negative log-likelihoods; it is undefined for a policy loss."""
    perplexities: dict[str, float] = {}
    for name, value in values.items():
        reading = read(name)
        if reading is not None and dict(reading.attributes).get(semconv.LOSS_TYPE) in _LOG_LIKELIHOOD_LOSSES:
            head, _, _ = name.rpartition("/")
            perplexities[f"{head}/perplexity" if head else "perplexity"] = efficiency.perplexity(value)
    return perplexities
