"""Phases of few steps that became slower, and parts of trajectories that explain why steps did."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from otel_rl import semconv
from otel_rl.export import Span
from otel_rl.look.insight import Finding, facts_of
from tests.look.insight.played import Played, Player, S

STEPS, CHANGE, SIZE = 60, 30, 4
Parts = Callable[[int, int], Mapping[tuple[str, str], float]]
"""Returns the seconds of the parts of a trajectory, by kind and name, for a step and a place in the group."""


def changes(
    directory: Path, parts: Parts | None = None, phases: Callable[[int], Mapping[str, float]] | None = None
) -> list[Finding]:
    """Return the changes of a training whose generation takes as long as the longest trajectory."""

    def noise(step: int) -> float:
        return 1 + 0.02 * math.sin(9.7 * step)

    def of_step(step: int, _rank: int) -> dict[str, float]:
        group = [sum(parts(step, at).values()) for at in range(SIZE)] if parts else [20.0]
        others = dict(phases(step)) if phases else {}
        return {"generate": max(group) * noise(step), **others, "update_actor": 8.0 * noise(step + 3)}

    player = Player(directory / "run", Played(phases=of_step))
    player.start()
    for step in range(STEPS):
        began = player.now
        player.step(step)
        for at in range(SIZE if parts else 0):
            player.add(*_trajectory(step, at, began, parts(step, at) if parts else {}, noise(step + at)))
    player.finish()
    return [finding for finding in facts_of(player.open()).findings if finding.kind == "change"]


def _trajectory(step: int, at: int, began: int, parts: Mapping[tuple[str, str], float], noise: float) -> list[Span]:
    place = 1 + at + SIZE * step
    trace, root, whole = f"{place:032x}", f"{place:016x}", {semconv.LOOP_ITERATION: step, semconv.RANK: 0}
    spans, end = [], began
    for number, ((kind, name), seconds) in enumerate(parts.items()):
        since, end = end, end + round(seconds * noise * S)
        attributes = whole | {semconv.TRAJECTORY_PART_NAME: name}
        identity = f"{(number + 1) * 10_000 + place:016x}"
        spans.append(Span(f"{semconv.SPAN_TRAJECTORY}.{kind}", trace, identity, root, since, end, attributes))
    return [*spans, Span(semconv.SPAN_TRAJECTORY, trace, root, "", began, end, whole)]


def usual(judge: float = 2.0, model: float = 20.0) -> dict[tuple[str, str], float]:
    return {("model", "policy"): model, ("verifier", "judge"): judge}


def late(step: int, before: float, after: float) -> float:
    return after if step >= CHANGE else before


def test_one_part_of_all_trajectories(tmp_path: Path) -> None:
    """It is named, with its time before and after."""
    (finding,) = changes(tmp_path, lambda step, _: usual(judge=late(step, 2, 24)))

    assert "generate grew from 21.9 s to 44.1 s with verifier judge of trajectories (2 s → 24 s)" in finding.sentence
    assert finding.advice.startswith("Look at verifier judge of trajectories")


def test_all_parts_of_trajectories(tmp_path: Path) -> None:
    """No part is accused if all of them became slower."""
    (finding,) = changes(tmp_path, lambda step, _: usual(judge=late(step, 10, 20), model=late(step, 20, 40)))

    assert "generate grew" in finding.sentence
    assert "judge" not in finding.sentence


def test_a_phase_that_grew_without_its_trajectories(tmp_path: Path) -> None:
    """Trajectories are not accused of the time around them."""
    (finding,) = changes(tmp_path, lambda *_: usual(), lambda step: {"reward": late(step, 2, 30)})

    assert "reward grew" in finding.sentence
    assert "trajector" not in finding.sentence


def test_the_longest_trajectory_alone(tmp_path: Path) -> None:
    """One of each group became long: the median one is as before."""
    (finding,) = changes(tmp_path, lambda step, at: usual(model=late(step, 20, 90) if at == step % SIZE else 20))

    assert "with the longest trajectory of a step (22.4 s → 1 min 32 s), by its part model policy" in finding.sentence
    assert "the median one takes 22.1 s, 22 s before" in finding.sentence
    assert finding.advice.startswith("Read the longest trajectories")


def test_the_model_of_all_trajectories(tmp_path: Path) -> None:
    """No single trajectory is accused if all of them became longer."""
    (finding,) = changes(tmp_path, lambda step, _: usual(model=late(step, 20, 90)))

    assert "with model policy of trajectories (20 s → 1 min 30 s)" in finding.sentence
    assert "longest" not in finding.sentence


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (lambda step: 2 + step / 2, "save_checkpoint became slower from step 4 to 59: 6.5 s → 29 s."),
        (lambda step: 3.0 + 0.1 * math.sin(step), None),
        (lambda step: 30 - step / 3, None),
        (lambda step: 3.0 + 2 * math.sin(9.7 * step), None),
    ],
    ids=["grows", "steady", "falls", "noisy"],
)
def test_a_phase_of_few_steps(tmp_path: Path, seconds: Callable[[int], float], sentence: str | None) -> None:
    """Its own times are compared: steps without it hide that it grows."""
    found = changes(tmp_path, phases=lambda step: {"save_checkpoint": seconds(step)} if step % 5 == 4 else {})

    assert [finding.sentence for finding in found] == ([sentence] if sentence else [])
    assert all("what it writes" in finding.advice for finding in found)


def test_an_empty_block_of_most_steps(tmp_path: Path) -> None:
    """A phase that is entered in each step, and does nothing in most of them, is one of few steps."""
    found = changes(
        tmp_path, phases=lambda step: {"run_evaluation": 4 + step / 3 if step % 4 == 3 else 0.002 * (step % 3)}
    )

    assert [finding.sentence.split(" from ")[0] for finding in found] == ["run_evaluation became slower"]
    assert "prompts" in found[0].advice
