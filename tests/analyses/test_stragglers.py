"""Stragglers, in simulated steps of many ranks that wait for each other."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from otel_rl.analyses.stragglers import Stragglers
from otel_rl.export import Event, Span
from otel_rl.recorder.facts.delay import delays
from otel_rl.recorder.journal.records import SpanEnded, SpanStarted, StepEnded, StepStarted
from tests.recorder.agent.reducing import S, reducing, started

PHASES = {"generate": 2.0, "reward": 0.5, "old_log_prob": 1.0, "advantage": 0.1, "update_actor": 1.5}
SYNC = "weight_sync"


def spans_of(
    world: int, steps: int, slow: tuple[int, str] | None = None, *, factor: float = 1.3, seed: int = 0
) -> Iterator[list[Span]]:
    """Yield the spans of each step: five phases in a rank's own time, and one in which all wait for the last.

    Clocks differ by up to a second, times by 3 %.
    """
    noise = random.Random(seed)
    skew = [noise.uniform(-1, 1) for _ in range(world)]
    now = 0.0
    for _ in range(steps):
        spans, ends = [], []
        for rank in range(world):
            time = now
            for phase, takes in PHASES.items():
                took = takes * noise.gauss(1, 0.03) * (factor if (rank, phase) == slow else 1)
                spans.append(span(phase, rank, time + skew[rank], time + took + skew[rank]))
                time += took
            ends.append(time)
        now = max(ends) + 0.2
        spans += [span(SYNC, rank, end + skew[rank], now + skew[rank]) for rank, end in enumerate(ends)]
        yield spans


def span(phase: str, rank: int, start: float, end: float) -> Span:
    return Span(phase, "", "", "", round((start + 10) * S), round((end + 10) * S), {"rl.phase": phase, "rl.rank": rank})


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("world", [4, 64])
def test_the_slow_rank_and_its_phase_come_first(phase: str, world: int) -> None:
    """A delay of 30 % of one rank in one phase of five: in at least 95 % of the windows, by their scores."""
    stragglers, first, told = Stragglers(), [], []
    for number, spans in enumerate(spans_of(world, 120, (world - 1, phase))):
        told += stragglers.add(spans)
        if number >= 20:
            worst = max(stragglers.worst(), key=lambda one: one.score)
            first.append((worst.phase, worst.rank) == (phase, world - 1))

    assert sum(first) >= 0.95 * len(first)
    assert {(one.phase, one.rank) for one in told} == {(phase, world - 1)}


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_slow(seed: int) -> None:
    """Noise of 3 % names nobody, and those who wait stay below the threshold."""
    stragglers = Stragglers()
    told = [one for spans in spans_of(16, 120, seed=seed) for one in stragglers.add(spans)]

    assert told == []
    assert max(one.score for one in stragglers.worst()) < 0.1


def test_those_who_wait_are_not_named() -> None:
    """Though the phase in which they wait takes them longest. The first one costs the others the most seconds."""
    stragglers = Stragglers()
    for spans in spans_of(8, 40, (3, "generate"), factor=2.0):
        stragglers.add(spans)
    worst, *others = stragglers.worst()

    assert (worst.phase, worst.rank, worst.seconds) == ("generate", 3, pytest.approx(2.0, rel=0.2))
    assert [one.score < 0.1 for one in others if one.phase == SYNC] == [True]


def test_one_slow_step_makes_no_straggler() -> None:
    """A garbage collection, a checkpoint, a slow disk."""
    stragglers, told = Stragglers(), []
    for number, spans in enumerate(spans_of(4, 60)):
        slow = next(spans_of(4, 1, (2, "reward"), factor=20)) if number == 30 else spans
        told += stragglers.add(slow)

    assert told == []


def test_a_straggler_is_told_once_and_again_after_it_had_recovered() -> None:
    """The event is the change; the gauge is what is."""
    stragglers, told = Stragglers(), []
    for slow in ((1, "generate"), None, (1, "generate")):
        for spans in spans_of(4, 60, slow):
            told += stragglers.add(spans)

    assert [(one.phase, one.rank) for one in told] == [("generate", 1)] * 2


def test_as_many_series_for_any_number_of_ranks() -> None:
    """Three for each phase: score, seconds, and the rank as a value."""
    counts = []
    for world in (2, 256):
        stragglers = Stragglers()
        for spans in spans_of(world, 6):
            stragglers.add(spans)
        counts.append(len(stragglers.points()))

    assert counts == [3 * (len(PHASES) + 1)] * 2


def test_who_was_early_and_waits_falls_not_behind() -> None:
    """Nor does who was late already and leaves with the others."""
    stays = {0: (0, 10 * S), 1: (2 * S, 10 * S), 2: (8 * S, 10 * S), 3: (2 * S, 13 * S)}

    assert delays(stays) == {0: 0.0, 1: 0.0, 2: -6.0, 3: 3.0}


def test_of_two_ranks_the_slow_one_falls_behind_by_all_of_its_delay() -> None:
    """It is compared with the other one, not with the middle between both."""
    assert delays({0: (0, 10 * S), 1: (0, 14 * S)}) == {0: 0.0, 1: 4.0}


def test_the_event_names_rank_host_and_phase() -> None:
    """As the agent sends it."""
    reducer = reducing()
    reducer.feed([(f"rank{n}", started(n, local=2)) for n in range(2)])
    found: list[Event] = []
    for step in range(8):
        for rank in range(2):
            begun = SpanStarted(1, 0, b"", step, "reward", 10 * step * S, b"")
            ended = SpanEnded(1, (10 * step + 1 + rank) * S, b"")
            records = (StepStarted(step, 10 * step * S, b""), begun, ended, StepEnded(step, (10 * step + 5) * S, b""))
            items = reducer.feed([(f"rank{rank}", record) for record in records]).items
            found += [item for item in items if isinstance(item, Event)]
    (event,) = found

    assert (event.name, event.rank) == ("rl.straggler", 1)
    assert event.attributes["rl.phase"] == "reward"
    assert event.attributes["host.name"] == "host"
    assert event.attributes["rl.straggler.delay"] == 1.0


def test_nothing_is_known_of_one_rank() -> None:
    """There is nobody to compare it with."""
    stragglers = Stragglers()

    assert [one for spans in spans_of(1, 20) for one in stragglers.add(spans)] == []
    assert stragglers.worst() == []


def test_phases_are_bounded() -> None:
    """A phase whose name changes with the step has no score after the first 200."""
    stragglers = Stragglers()
    for step in range(500):
        stragglers.add([span(f"step {step}", rank, 0, 1) for rank in range(2)])

    assert len(stragglers.points()) == 3 * 200
