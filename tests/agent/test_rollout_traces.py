"""Which trajectories' traces leave with a step."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from otel_rl.agent.steps.trace_sampling import TraceSampler
from otel_rl.export import Item, Span, SpanLink
from otel_rl.journal.ids import step_ids
from otel_rl.journal.segments import Position
from tests.agent.reducing import S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BUDGET = 100


def sampler(ratio: float = 1.0, budget: int = BUDGET) -> TraceSampler:
    return TraceSampler(ratio, str, budget)


def trajectory(
    n: int, *, seconds: float = 1.0, requests: int = 2, error: str | None = None, batch: int = 0, **told: float
) -> list[Span]:
    """Return the spans of trajectory n in the order in which they end: its requests, then its root."""
    trace_id, root = trace_of(n), f"{n + 1:016x}"
    inside = [Span("llm_request", trace_id, f"{n:08x}{r:08x}", root, 0, S) for r in range(requests)]
    link = (SpanLink(trace_of(batch), f"{batch:016x}"),) if batch else ()
    attributes = {f"rl.trajectory.{name}": value for name, value in told.items()}
    return [*inside, Span("rl.trajectory", trace_id, root, "", 0, round(seconds * S), attributes, error, 0, (), link)]


def trace_of(n: int) -> str:
    mixed = random.Random(n).getrandbits(128)
    return f"{mixed:032x}"


def step(number: int, consumed: Iterable[int], outcome: str = "trained") -> list[Item]:
    """Return the spans of a step that consumed these trajectories."""
    ids = step_ids("run", 0, number)
    trace_id, root = f"{ids.trace_id:032x}", f"{ids.span_id:016x}"
    links = tuple(SpanLink(trace_of(n), f"{n + 1:016x}", {"rl.trajectory.outcome": outcome}) for n in consumed)
    phase = Span("train", trace_id, f"{number:016x}", root, 0, S, {"rl.phase": "train"})
    return [phase, Span("rl.loop", trace_id, root, "", 0, S, links=links)]


def spans(items: Sequence[Item]) -> list[Span]:
    return [item for item in items if isinstance(item, Span)]


def close(traces: TraceSampler, number: int, consumed: Iterable[int], outcome: str = "trained") -> list[Span]:
    """Return what leaves with a step, after the time that it waits."""
    left = spans(traces.of(step(number, consumed, outcome), now=S))
    return left + traces.expire(12 * S + number * S)


def check_graph(left: list[Span], number: int) -> set[str]:
    """From the step's root all that left is reached; no parent and no link leads to nothing. Return the traces."""
    ids = {(span.trace_id, span.span_id) for span in left}
    orphans = [span for span in left if span.parent_id and (span.trace_id, span.parent_id) not in ids]
    dead = [link for span in left for link in span.links if (link.trace_id, link.span_id) not in ids]
    (root,) = (span for span in left if span.name == "rl.loop")
    assert root.span_id == f"{step_ids('run', 0, number).span_id:016x}"
    reached = {root.trace_id}
    for _ in range(3):
        reached |= {link.trace_id for span in left if span.trace_id in reached for link in span.links}
    assert (orphans, dead) == ([], [])
    assert {span.trace_id for span in left} == reached
    return reached - {root.trace_id}


def test_what_a_step_trained_on_leaves_with_it() -> None:
    """It is buffered until then."""
    traces = sampler()
    assert traces.of([span for n in range(5) for span in trajectory(n)]) == []
    left = close(traces, 0, range(5))

    assert check_graph(left, 0) == {trace_of(n) for n in range(5)}
    assert len(left) == 2 + 5 * 3


def test_ten_thousand_are_kept_within_the_budget() -> None:
    """The slowest, the failed, those with extreme rewards; the others at random; every one of them is whole."""
    traces = sampler(budget=500)
    dice = random.Random(7)
    for n in range(10_000):
        seconds = 100.0 + n if n % 1000 == 0 else dice.random()
        error = "timed out" if n % 3000 == 1 else None
        traces.of(trajectory(n, seconds=seconds, error=error, reward=float(n)))
    left = close(traces, 0, range(10_000))
    kept = check_graph(left, 0)

    assert 490 <= len(left) <= 500
    assert {trace_of(n) for n in range(0, 10_000, 1000)} <= kept
    assert {trace_of(n) for n in range(1, 10_000, 3000)} <= kept
    assert {trace_of(n) for n in (0, 1, 2, 3, 4, 9995, 9996, 9997, 9998, 9999)} <= kept
    assert traces.left_out == 30_000 - (len(left) - 2)


def test_more_links_than_the_sdk_allows() -> None:
    """The SDK would stop at 128."""
    traces = sampler(budget=2000)
    traces.of([span for n in range(300) for span in trajectory(n)])
    left = close(traces, 0, range(300))

    assert len(left[-1].links) == 300


def test_over_weight_versions() -> None:
    """A trajectory that waited for two steps goes with the one that trains on it."""
    traces = sampler()
    traces.of(trajectory(0))
    assert len(traces.of(step(0, []))) == 2
    assert len(traces.of(step(1, []))) == 2

    assert check_graph(close(traces, 2, [0]), 2) == {trace_of(0)}


def test_the_batch_goes_with_its_trajectories() -> None:
    """Also when it goes on for longer than the first of them."""
    traces = sampler()
    traces.rollouts.expect([trace_of(50), trace_of(60)])
    batches = [Span("rl.rollout", trace_of(n), f"{n:016x}", "", 0, 9 * S) for n in (50, 60)]
    traces.of([*trajectory(0, batch=50), *trajectory(1, batch=60), batches[0]])
    left = close(traces, 0, [0, 1])
    later = spans(traces.of([batches[1]]))

    assert check_graph([*left, *later], 0) == {trace_of(n) for n in (0, 1, 50, 60)}


def test_spans_of_a_server_come_when_they_come() -> None:
    """Before the trajectory has ended, or after the step has; there is room for them with the step."""
    traces = sampler(budget=8)
    early, late, *_, root = trajectory(0, requests=5)
    traces.of([early])
    traces.of([root])
    left = close(traces, 0, [0])
    left += spans(traces.of([late]))

    assert check_graph(left, 0) == {trace_of(0)}
    assert all(span in left for span in (early, late, root))
    assert [bool(traces.of([span])) for span in trajectory(0, requests=9)[2:9]] == [True] * 3 + [False] * 4


def test_what_is_not_kept_stays_away() -> None:
    """Neither the late spans of a trajectory nor a link to it leave."""
    traces = sampler(budget=2 + 3)
    traces.of([*trajectory(0), *trajectory(1, seconds=9)])
    left = close(traces, 0, [0, 1])

    assert check_graph(left, 0) == {trace_of(1)}
    assert traces.of(trajectory(0)) == []


def test_a_step_that_is_left_out_takes_its_trajectories_along() -> None:
    """Nothing would lead to them."""
    traces = sampler(ratio=0.0)
    traces.of(trajectory(0))

    assert close(traces, 0, [0]) == []
    assert traces.left_out == 5


def test_other_traces_do_not_wait_for_steps() -> None:
    """Phases outside of steps leave when their root has ended."""
    traces = sampler()
    child = Span("download", trace_of(0), f"{2:016x}", f"{1:016x}", 0, S)
    root = Span("setup", trace_of(0), f"{1:016x}", "", 0, S)

    assert traces.of([child]) == []
    assert spans(traces.of([root])) == [child, root]


def test_a_root_in_another_system_is_not_awaited_for_long() -> None:
    """A phase in the trace of a scheduler's job leaves after a minute."""
    traces = sampler()
    phase = Span("setup", trace_of(0), f"{2:016x}", f"{1:016x}", 0, S)
    traces.of([phase], now=S)

    assert traces.expire(30 * S) == []
    assert traces.expire(70 * S) == [phase]
    assert traces.of([phase], now=71 * S) == [phase]


def test_what_no_step_takes_is_decided_in_the_end() -> None:
    """Of rollouts that nobody trained on, those that failed or are within the ratio leave."""
    traces = sampler(ratio=0.0)
    traces.of([*trajectory(0), *trajectory(1, error="timed out")], now=S)

    assert traces.expire(14 * 60 * S) == []
    assert {span.trace_id for span in traces.expire(16 * 60 * S)} == {trace_of(1)}


def test_nothing_waits_at_the_end() -> None:
    """Everything is decided when the run has ended."""
    traces = sampler()
    traces.of(trajectory(0), now=S)

    assert len(traces.expire(S, all_of_it=True)) == 3
    assert traces.rollouts.since is None


def test_the_next_agent_goes_on() -> None:
    """It reads from the outbox what was held, steps that wait among it, and what was settled."""
    first = sampler()
    batches = []
    for n, items in enumerate((trajectory(0), trajectory(1), step(0, [0]), [], step(1, [1]))):
        first.of(items, Position(1, n), n * S)
        first.expire((n + 10) * S)  # the first step is settled with the fourth batch
        batches.append((Position(1, n), first.rollouts.fresh, first.rollouts.settled))
        first.rollouts.saved()
    assert first.rollouts.since == Position(1, 1)
    second = sampler()
    for place, held, settled in batches:
        second.rollouts.restore(held, settled.items(), place, S)

    assert second.rollouts.since == Position(1, 1)
    assert check_graph(second.expire(20 * S), 1) == {trace_of(1)}


@pytest.mark.parametrize("outcome", ["stale", "aborted"])
def test_dropped_ones_are_linked_too(outcome: str) -> None:
    """The link says what became of them."""
    traces = sampler()
    traces.of(trajectory(0))
    left = close(traces, 0, [0], outcome)

    assert left[-1].links[0].attributes == {"rl.trajectory.outcome": outcome}
