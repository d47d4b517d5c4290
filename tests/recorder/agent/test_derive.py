"""Metrics that follow from others."""

from __future__ import annotations

import math

import pytest

from otel_rl.recorder.agent.steps.derive import Step, derived
from otel_rl.recorder.journal.records import DeviceSeen, SpanEnded, SpanStarted, StepStarted
from otel_rl.recorder.settings.settings import Flops
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.reducing import S, feed, logged, reducing, rows, started, step

QUIET = Step(seconds=0.0, phases={}, tokens={}, devices=1)


def follows(values: dict[str, float], measured: Step = QUIET, model: Flops | None = None) -> dict[str, float]:
    vocabulary = Vocabulary("toyrl")
    return derived(values, measured, model or Flops(), vocabulary.read)


def test_rates_of_a_step_and_of_its_phases() -> None:
    """Tokens that a phase names give its rate, for all devices and for each, and the time of one token."""
    measured = Step(seconds=4.0, phases={"generate": 2.0}, tokens={"generate": 1000.0}, devices=2)

    assert follows({}, measured) == {
        "time/generate": 2.0,
        "time/step": 4.0,
        "perf/steps_per_second": 0.25,
        "perf/generate/tokens_per_second": 500.0,
        "perf/generate/tokens_per_second_per_gpu": 250.0,
        "time_per_token/generate": 0.002,
    }


def test_model_flops_utilization() -> None:
    """6 FLOPs for each parameter and token trained on, over what the devices can do."""
    measured = Step(seconds=2.0, phases={"update_actor": 1.0}, tokens={"update_actor": 1000.0}, devices=2)
    found = follows({}, measured, Flops(parameters=1e9, peak=10e12))

    assert found["perf/tflops_per_gpu"] == 6e12 / 2 / 2 / 1e12
    assert found["perf/mfu"] == pytest.approx(0.15)
    assert found["perf/tokens_per_second_per_gpu"] == 250.0


def test_the_users_flops_count_first() -> None:
    """Given FLOPs per token replace the rule of thumb."""
    measured = Step(seconds=1.0, phases={"train": 1.0}, tokens={"train": 10.0}, devices=1)

    assert follows({}, measured, Flops(parameters=1e9, per_token=1e12))["perf/tflops_per_gpu"] == 10.0


def test_nothing_is_derived_that_was_logged() -> None:
    """Neither under its own name, nor under the framework's name for the same metric."""
    measured = Step(seconds=2.0, phases={"gen": 1.0}, tokens={}, devices=1)
    found = follows({"perf/throughput": 70.0, "perf/total_num_tokens": 100.0, "time/gen": 3.0}, measured)

    assert found == {
        "time/step": 2.0,
        "perf/steps_per_second": 0.5,
        "perf/tokens_per_second": 50.0,
    }


def test_perplexity_of_a_likelihood_and_of_nothing_else() -> None:
    """Exp of a policy loss means nothing."""
    vocabulary = Vocabulary("toyrl")
    found = [
        derived({"actor/sft_loss": loss, "actor/pg_loss": 2.0}, QUIET, Flops(), vocabulary.read) for loss in (2.0, 1e6)
    ]

    assert found == [{"actor/perplexity": math.exp(2.0)}, {"actor/perplexity": math.inf}]


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_row_holds_what_its_phases_give(gpus: int) -> None:
    """Tokens of all ranks, over the time of the slowest; and of each GPU, if there are some."""
    reducer = reducing()
    reducer.feed([("a", started(0, local=2)), ("b", started(1, local=2))])
    feed(reducer, "a", *[DeviceSeen(0, index, "", "", 80 << 30) for index in range(gpus)])
    for name, seconds in (("a", 1), ("b", 2)):
        begun = SpanStarted(1, 0, b"", 0, "generate", 0, b"")
        feed(reducer, name, *step(0, 0, begun, SpanEnded(1, seconds * S, b"", {"tokens": 100}), logged(loss=1.0)))
    (row,) = rows(reducer.feed([("a", StepStarted(1, 3 * S, b"")), ("b", StepStarted(1, 3 * S, b""))]).items)

    assert row.values["perf/generate/tokens_per_second"] == 100.0
    assert row.values.get("perf/generate/tokens_per_second_per_gpu") == (50.0 if gpus else None)


def test_overlapping_phases_are_not_added_up() -> None:
    """Two phases that run side by side take as long as they take; the step's time is its own."""
    found = follows({}, Step(seconds=5.0, phases={"generate": 4.0, "evaluate": 3.0}, tokens={}, devices=1))

    assert (found["time/step"], found["time/generate"], found["time/evaluate"]) == (5.0, 4.0, 3.0)
