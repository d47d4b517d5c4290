"""The causes of slower steps: each is said where it holds, and not where it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from otel_rl.export import Row
from otel_rl.look.insight import Finding, facts_of
from otel_rl.semconv.main_metrics import STEP_TIME
from tests.look.insight.played import BEGAN, PHASES, Played, Player, S, play

STEPS, CHANGE = 80, 40
Values = Callable[[int], Mapping[str, float]]


def change_of(
    directory: Path, slow: Callable[[str, int], float], values: Values = lambda _: {}, ranks: int = 1
) -> Finding:
    """Return the change of a training whose phases take so many times as long from a step on, by phase and rank."""

    def phases(step: int, rank: int) -> dict[str, float]:
        noise = 1 + 0.02 * math.sin(9.7 * step + rank)
        return {
            phase: seconds * noise * (slow(phase, rank) if step >= CHANGE else 1) for phase, seconds in PHASES.items()
        }

    training = Played(ranks=ranks, phases=phases, values=lambda step, _: {"reward": step / STEPS, **values(step)})
    facts = facts_of(play(directory / "run", training, STEPS))
    (finding,) = (finding for finding in facts.findings if finding.kind == "change")
    return finding


def slower(phase: str, factor: float = 2.0) -> Callable[[str, int], float]:
    return lambda name, _: factor if name == phase else 1


def lengths(before: float, after: float, over: int = 1) -> Values:
    """Return lengths of completions that change within so many steps around the change, or over the whole run."""
    begin = CHANGE - over // 2
    return lambda step: {"completions/mean_length": before + (after - before) * min(1, max(0, (step - begin) / over))}


def test_a_rank_that_is_slower_alone(tmp_path: Path) -> None:
    """Completions that grew on all ranks are not the reason why one of them is slower."""
    finding = change_of(
        tmp_path, lambda phase, rank: 2 if (phase, rank) == ("generate", 1) else 1, lengths(512, 1180), ranks=4
    )

    assert "on rank 1" in finding.sentence
    assert "length" not in finding.sentence + finding.advice
    assert finding.evidence.ranks == (1,)


def test_completions_that_grew_on_all_ranks(tmp_path: Path) -> None:
    """They are the reason."""
    finding = change_of(tmp_path, slower("generate"), lengths(512, 1180), ranks=2)

    assert "generate grew with the length of completions (512 → 1,180 tokens)" in finding.sentence
    assert finding.advice.startswith("Cap the length")


def test_completions_that_grew_at_other_steps(tmp_path: Path) -> None:
    """A length that rises over the whole run is not the reason of a sudden change."""
    finding = change_of(tmp_path, slower("generate"), lengths(400, 1180, over=STEPS))

    assert "length" not in finding.sentence + finding.advice


@pytest.mark.parametrize("values", [lambda _: {}, lengths(512, 1180)], ids=["steady", "longer"])
def test_all_phases_that_are_slower_alike(tmp_path: Path, values: Values) -> None:
    """It is the machine: also if completions grew, since weights are not synchronized more slowly for that."""
    finding = change_of(tmp_path, lambda *_: 1.6, values)

    assert "all phases take longer alike: the machine is shared or throttled" in finding.sentence
    assert "Cap" not in finding.advice


def test_all_phases_that_are_slower_alike_on_one_rank(tmp_path: Path) -> None:
    """It is the machine of that rank."""
    finding = change_of(tmp_path, lambda _, rank: 1.6 if rank == 0 else 1, ranks=4)

    assert "on rank 0" in finding.sentence


@pytest.mark.parametrize("phase", ["generate", "update_actor"])
def test_one_phase_that_is_slower(tmp_path: Path, phase: str) -> None:
    """The machine is not accused."""
    finding = change_of(tmp_path, slower(phase))

    assert f"{phase} grew from " in finding.sentence
    assert "machine" not in finding.sentence


def test_fewer_requests_at_once(tmp_path: Path) -> None:
    """They are the reason of a slower rollout, if they do not wait in the engine instead."""
    finding = change_of(
        tmp_path, slower("generate", 5), lambda step: {"vllm/num_requests_running": 27 if step < CHANGE else 1}
    )

    assert "the requests that run at once fell from 27 to 1" in finding.sentence
    assert finding.advice.startswith("Keep as many requests in flight")


@pytest.mark.parametrize(
    ("phase", "running", "waiting"),
    [("generate", 26, 0), ("generate", 1, 26), ("update_actor", 1, 0)],
    ids=["as many", "in the queue", "another phase"],
)
def test_requests_that_are_not_the_reason(tmp_path: Path, phase: str, running: int, waiting: int) -> None:
    """As many run as before, or they wait in the engine, or it is another phase."""

    def values(step: int) -> dict[str, float]:
        late = step >= CHANGE
        return {
            "vllm/num_requests_running": running if late else 27,
            "vllm/num_requests_waiting": waiting if late else 0,
        }

    finding = change_of(tmp_path, slower(phase, 5), values)

    assert "at once" not in finding.sentence


def _engines(first: int, second: int) -> Values:
    """Return the requests of two engines, which have 14 and 13 before the change."""
    return lambda step: {
        "engine_0/num_requests_running": 14 if step < CHANGE else first,
        "engine_1/num_requests_running": 13 if step < CHANGE else second,
    }


def test_an_engine_that_gets_all_requests(tmp_path: Path) -> None:
    """It is the reason, not that there are too few engines."""
    finding = change_of(tmp_path, slower("generate"), _engines(27, 0))

    assert "requests are uneven over engines: 27 in the busiest one, 0 in the least busy one" in finding.sentence
    assert "more engines" not in finding.advice.lower()


def test_engines_with_as_many_requests_as_before(tmp_path: Path) -> None:
    """Their routing is not accused."""
    finding = change_of(tmp_path, slower("generate"), _engines(13, 14))

    assert "uneven" not in finding.sentence


def _extremes(mean: float, longest: float) -> Values:
    """Return the mean and the longest length of completions, which are 500 and 600 before the change."""
    return lambda step: {
        "response_length/mean": 500 if step < CHANGE else mean,
        "response_length/max": 600 if step < CHANGE else longest,
    }


def test_the_longest_completions_alone(tmp_path: Path) -> None:
    """They are the reason if the mean did not grow as they did."""
    finding = change_of(tmp_path, slower("generate", 5), _extremes(900, 3000))

    assert "with the longest completions (response_length/max 600 → 3,000; response_length/mean" in finding.sentence
    assert finding.advice.startswith("Read the longest completions")


@pytest.mark.parametrize(
    ("phase", "values"),
    [
        ("generate", _extremes(2400, 3000)),
        ("generate", _extremes(500, 620)),
        ("weight_sync", _extremes(900, 3000)),
    ],
    ids=["all of them", "as before", "another phase"],
)
def test_longest_completions_that_are_not_the_reason(tmp_path: Path, phase: str, values: Values) -> None:
    """All became longer, none did, or the phase has nothing to do with them."""
    assert "longest" not in change_of(tmp_path, slower(phase, 5), values).sentence


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("engine/prefix_cache_hit_rate", 0.86, 0.03),
        ("engine/prefix_cache_hit_rate", 0.86, 0.0),
        ("spec/acceptance_rate", 0.8, 0.2),
        ("engine/num_preempted", 0, 40),
        ("rollout/queue_length", 3, 24),
    ],
)
def test_a_rate_that_changed_with_a_phase(tmp_path: Path, name: str, before: float, after: float) -> None:
    """It is said what changed at the same step, and by how much."""
    finding = change_of(tmp_path, slower("generate"), lambda step: {name: before if step < CHANGE else after})

    assert f"generate grew from 24 s to 47.9 s together with {name} (" in finding.sentence
    assert finding.advice.endswith("it may be the reason.")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("engine/prefix_cache_hit_rate", 0.5, 0.86),
        ("spec/acceptance_rate", 0.8, 0.78),
        ("rollout/queue_length", 24, 3),
        ("perf/tokens_per_second", 900, 450),
    ],
)
def test_a_rate_that_does_not_explain_a_phase(tmp_path: Path, name: str, before: float, after: float) -> None:
    """It changed the other way, or little, or is the time itself in other words."""
    finding = change_of(tmp_path, slower("generate"), lambda step: {name: before if step < CHANGE else after})

    assert name not in finding.sentence


def test_a_logged_time_inside_of_another_one(tmp_path: Path) -> None:
    """The inner one is named; both have the whole change."""
    player = Player(tmp_path / "run", Played())
    for step in range(STEPS):
        judge = 2.0 if step < CHANGE else 26.0
        times = {"timing_s/generate": 24 + judge, "timing_s/judge": judge, "timing_s/update": 10 + 0.1 * math.sin(step)}
        whole = {STEP_TIME: times["timing_s/generate"] + times["timing_s/update"]}
        player.add(Row(step, BEGAN + step * 60 * S, times | whole))
    facts = facts_of(player.open())
    found = [finding.sentence for finding in facts.findings if finding.kind == "change"]

    assert [sentence.partition(": ")[2] for sentence in found] == [
        "timing_s/generate grew from 26 s to 50 s, all of it in timing_s/judge (2 s → 26 s)."
    ]
