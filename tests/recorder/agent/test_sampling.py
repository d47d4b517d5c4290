"""Which traces leave."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from otel_rl.export import Event, Item, Span
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.agent.steps.trace_sampling import TraceSampler
from otel_rl.recorder.journal.ids import step_ids
from otel_rl.recorder.journal.records import Finished
from otel_rl.recorder.settings.loading import load
from tests.faults import hostile
from tests.faults.sane import T0, started, steps
from tests.processes import items_of
from tests.recorder.agent.reducing import S


def step(number: int, seconds: float = 1.0, phase: str = "generate", error: str | None = None) -> list[Item]:
    """Return the spans of a step as the reducer makes them: phases of two ranks, then the root."""
    ids = step_ids("run", 0, number)
    trace_id, root = f"{ids.trace_id:032x}", f"{ids.span_id:016x}"
    end = round(seconds * S)
    phases = [Span(phase, trace_id, f"{n:016x}", root, 0, end, {"rl.phase": phase}, error) for n in range(2)]
    return [*phases, Span("rl.loop", trace_id, root, "", 0, end)]


def kept(sampler: TraceSampler, steps: list[list[Item]]) -> list[int]:
    return [number for number, items in enumerate(steps) if sampler.of(items)]


def test_a_share_of_the_steps_is_kept() -> None:
    """Each with all its spans or none, and the same ones by every agent."""
    first, second = (TraceSampler(0.1, str, 100) for _ in range(2))
    numbers = kept(first, [step(n) for n in range(2000)])

    assert 150 < len(numbers) < 250
    assert numbers == kept(second, [step(n) for n in range(2000)])
    assert first.left_out == 3 * (2000 - len(numbers))


def test_everything_by_default() -> None:
    """A ratio of 1 keeps all."""
    assert kept(TraceSampler(1.0, str, 100), [step(n) for n in range(50)]) == list(range(50))


@pytest.mark.parametrize(
    "worth",
    [
        {"error": "OutOfMemoryError"},
        {"phase": "evaluate"},
        {"phase": "save_checkpoint"},
        {"phase": "testing"},
        {"seconds": 1.6},
    ],
)
def test_steps_that_are_worth_a_look_are_kept(worth: dict[str, object]) -> None:
    """What failed, evaluated, saved, or was slow; a framework's own name of a phase counts too."""
    sampler = TraceSampler(0.0, {"testing": "evaluate"}.get, 100)  # type: ignore[arg-type]
    steps = [step(n) for n in range(30)] + [step(30, **worth)] + [step(n) for n in range(31, 40)]  # type: ignore[arg-type]

    assert kept(sampler, steps) == [30]


def test_what_comes_late_goes_with_its_step() -> None:
    """A span that ends after its step was closed."""
    sampler = TraceSampler(0.0, str, 100)
    late = [step(n, error=error)[0] for n, error in ((0, None), (1, "it failed"))]
    for n, error in ((0, None), (1, "it failed")):
        sampler.of(step(n, error=error))

    assert [bool(sampler.of([span])) for span in late] == [False, True]


def test_other_items_pass() -> None:
    """Events leave with or without a trace."""
    event = Event("checkpoint", 0)

    assert TraceSampler(0.0, str, 100).of([event]) == [event]


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_spans_that_are_left_out_are_for_the_archive(tmp_path: Path, limit: int) -> None:
    """Without an archive they do not reach the outbox."""
    journal = [started(), *steps(0, 1), Finished(T0)]
    settings = {"archive_limit": limit, "traces": {"ratio": 0.0}}
    run = hostile.recorded(tmp_path, {"rank0.attempt1": journal}, ["jsonl"], **settings)
    run_agent(run.dir, once=True)
    names = Counter((item.name, item.sampled) for item in items_of(run.dir) if isinstance(item, Span))

    assert names == ({("rl.loop", False): 2} if limit else {})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 1.0),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, 0.25),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, 0.0),
        ({"OTEL_TRACES_SAMPLER": "always_off", "OTEL_RL_TRACES_RATIO": "0.5"}, 0.0),
    ],
)
def test_opentelemetrys_own_variables_count(environ: dict[str, str], expected: float) -> None:
    """They have their standard meaning, and win over the variables of otel-rl; a keyword of `init` wins over both."""
    assert load({}, environ).traces.ratio == expected
    assert load({"traces": {"ratio": 0.75}}, environ).traces.ratio == 0.75
