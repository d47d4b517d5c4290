"""Which spans of trajectories leave: a share of the traces that keeps to a budget per minute, and failed ones."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable

import pytest

from otel_rl.export import Item, Span, SpanLink, Trajectory
from otel_rl.recorder.agent.steps.trace_sampling import TraceSampler
from otel_rl.recorder.journal.ids import step_ids
from tests.recorder.agent.reducing import S

MINUTE = 60 * S


def sampler(budget: int, ratio: float = 1.0) -> TraceSampler:
    return TraceSampler(ratio, str, budget, marks=True)


def trajectory(n: int, *, requests: int = 3, failed: int = -1) -> list[Span]:
    """Return the spans of trajectory n in the order in which they end: its requests, one of them failed, its root."""
    trace_id, root = trace_of(n), f"{n + 1:016x}"
    errors = ["timed out" if request == failed else None for request in range(requests)]
    inside = [
        Span("llm_request", trace_id, f"{n:08x}{r:08x}", root, 0, S, error=error) for r, error in enumerate(errors)
    ]
    return [*inside, Span("rl.trajectory", trace_id, root, "", 0, S)]


def trace_of(n: int) -> str:
    return f"{random.Random(n).getrandbits(128):032x}"


def step(number: int, consumed: Iterable[int], outcome: str = "trained") -> list[Span]:
    """Return the spans of a step that consumed these trajectories; it also links to another system."""
    ids = step_ids("run", 0, number)
    trace_id, root = f"{ids.trace_id:032x}", f"{ids.span_id:016x}"
    links = [SpanLink(trace_of(n), f"{n + 1:016x}", {"rl.trajectory.outcome": outcome}) for n in consumed]
    phase = Span("train", trace_id, f"{number:016x}", root, 0, S, {"rl.phase": "train"})
    return [phase, Span("rl.loop", trace_id, root, "", 0, S, links=(*links, SpanLink("f" * 32, "f" * 16)))]


def sampled(items: Iterable[Item]) -> list[Span]:
    return [item for item in items if isinstance(item, Span) and item.sampled]


def minute_of(traces: TraceSampler, minute: int, count: int) -> Counter[str]:
    """Return how many spans of each of so many trajectories leave in a minute."""
    numbers = range(minute * count, (minute + 1) * count)
    left = [traces.of(trajectory(n), minute * MINUTE + n % count) for n in numbers]
    return Counter(span.trace_id for items in left for span in sampled(items))


def test_all_leave_at_once_within_the_budget() -> None:
    """Neither the end of the trace nor a step is awaited, also not by the spans of inference servers."""
    traces = sampler(budget=100)
    left = [traces.of([span]) for n in range(25) for span in trajectory(n)]

    assert all(sampled(items) == items for items in left)
    assert traces.left_out == 0


def test_a_steady_load_keeps_to_the_budget() -> None:
    """From the second minute on; the traces that leave are whole, and no others than the ratio would choose."""
    traces = sampler(budget=400)
    minute_of(traces, 0, 1000)
    later = [minute_of(traces, n, 1000) for n in range(1, 6)]

    assert sum(left.total() for left in later) == pytest.approx(5 * 400, rel=0.15)
    assert max(left.total() for left in later) < 1.4 * 400
    assert {spans for left in later for spans in left.values()} == {4}
    assert max(trace_id[16:] for left in later for trace_id in left) < f"{(1 << 64) // 10:016x}"


def test_a_load_that_grows_exceeds_the_budget_by_its_logarithm() -> None:
    """The traces with the lowest ids are whole in that minute too."""
    left = minute_of(sampler(budget=400), 0, 10_000)
    low = [trace_of(n) for n in range(10_000) if trace_of(n)[16:] < f"{(1 << 64) // 100:016x}"]

    assert left.total() == pytest.approx(400 * (1 + math.log(100)), rel=0.15)
    assert {left[trace_id] for trace_id in low} == {4}


def test_bursts_that_come_once_in_a_few_minutes() -> None:
    """The share does not return to 1 in between."""
    traces = sampler(budget=400)
    minute_of(traces, 0, 1000)
    for minute in range(1, 5):
        traces.of(trajectory(minute), minute * MINUTE)

    assert minute_of(traces, 5, 1000).total() < 2 * 400


def test_what_is_left_out_is_marked() -> None:
    """Every span is returned; without marks, those that leave alone. Both are counted."""
    traces, dropping = sampler(budget=10), TraceSampler(1.0, str, 10)
    given = [span for n in range(100) for span in trajectory(n)]
    marked, left = traces.of(given), dropping.of(given)

    assert len(marked) == len(given) == len(left) + dropping.left_out
    assert sampled(marked) == left
    assert traces.left_out == dropping.left_out > 200


def test_failed_ones_leave_from_their_error_on() -> None:
    """They have a budget of their own."""
    traces = sampler(budget=30, ratio=0.0)
    left = sampled(traces.of([span for n in range(10) for span in trajectory(n, failed=1)]))

    assert left == sampled(item for n in range(10) for item in trajectory(n, failed=1)[1:])
    assert not sampled(traces.of(trajectory(10, failed=0)))
    assert sampled(traces.of(trajectory(11, failed=0), MINUTE))


def test_a_step_links_to_trajectories_that_left() -> None:
    """There may be more than the 128 that the SDK allows; links to other systems stay."""
    traces = sampler(budget=500)
    left = sampled(traces.of([span for n in range(400) for span in trajectory(n, requests=1)]))
    root = sampled(traces.of(step(0, range(400))))[-1]
    *linked, other = (link.trace_id for link in root.links)
    whole = Counter(span.trace_id for span in left)

    assert {whole[trace_id] for trace_id in linked} == {2}
    assert (len(linked) > 128, other) == (True, "f" * 32)


def test_what_is_left_out_has_no_messages() -> None:
    """Nobody shows them: the archive, which gets these spans too, has a table of messages."""
    spans = [Span("rl.trajectory", trace_of(n), "b" * 16, "", 0, S, {"gen_ai.input.messages": "[]"}) for n in range(90)]
    found = [item for item in sampler(budget=10).of(spans) if isinstance(item, Span)]

    assert {(one.sampled, bool(one.attributes)) for one in found} == {(True, True), (False, False)}


def test_a_trajectory_is_sampled_with_its_trace() -> None:
    """One without a trace is not."""
    traces = sampler(budget=40)
    left = sampled(traces.of([span for n in range(100) for span in trajectory(n)]))
    found = traces.of([Trajectory(0, 0, 0, 0, "trained", 0, trace_of(n), "b" * 16) for n in range(100)])
    kept = {one.trace_id for one in found if isinstance(one, Trajectory) and one.sampled}

    assert set() < kept <= {span.trace_id for span in left}
    assert [one.sampled for one in traces.of([Trajectory(0, 0, 0, 0, "trained", 0)])] == [False]


@pytest.mark.parametrize("outcome", ["stale", "aborted"])
def test_dropped_ones_are_linked_too(outcome: str) -> None:
    """The link says what became of them."""
    traces = sampler(budget=100)
    traces.of(trajectory(0))
    left = sampled(traces.of(step(0, [0], outcome)))

    assert left[-1].links[0].attributes == {"rl.trajectory.outcome": outcome}


def test_exemplars_refer_to_what_leaves() -> None:
    """Exactly for steps that have ended; for other traces as the share is at the time."""
    traces = sampler(budget=80)
    left = traces.of([span for n in range(100) for span in trajectory(n)])
    kept = {trace_of(n) for n in range(100) if traces.keeps(trace_of(n))}
    *_, root = sampled(traces.of(step(0, [])))

    assert 0 < len(kept) < 40
    assert sum(span.trace_id in kept for span in sampled(left)) == 4 * len(kept)
    assert traces.keeps(root.trace_id)


def test_a_step_does_not_count_against_the_budget() -> None:
    """Nor do spans of it that come after it; those that come before it are decided like any other."""
    traces = sampler(budget=1)
    early, root = step(0, [])
    late = Span("request", root.trace_id, "a" * 16, root.span_id, 0, S)
    traces.of([span for n in range(1000) for span in trajectory(n)])

    assert not sampled(traces.of([early]))
    assert len(sampled(traces.of(step(0, [])))) == 2
    assert sampled(traces.of([late] * 10)) == [late] * 10


def test_a_budget_of_nothing() -> None:
    """Steps alone leave."""
    traces = sampler(budget=0)

    assert not sampled(traces.of([*trajectory(0), *trajectory(1, failed=0)]))
    assert len(sampled(traces.of(step(0, [])))) == 2
