"""The course of a reward: where it changed, by how much, and which of its parts paid for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.look.insight.course import course_of, fall_of, flat_since, move_of
from otel_rl.look.insight.reward_parts import paid_reward
from otel_rl.look.insight.series import Series
from tests.look.insight.columns_of_tests import course, series


@pytest.mark.parametrize("at", [60, 150, 281])
def test_a_sudden_fall_is_at_its_step(at: int) -> None:
    """The step is where the level changed, not where the highest value happened to be."""
    values = course(lambda step: 0.6 if step < at else 0.1)
    move = fall_of(values, course_of(values))

    assert move is not None
    assert (move.first, move.last) == (at, at)
    assert move.before == pytest.approx(0.6, abs=0.03)


def test_a_slow_fall_has_two_steps() -> None:
    """Those between which most of it happened."""
    values = course(lambda step: 0.8 - 0.6 * min(1, max(0, step - 100) / 100))
    move = fall_of(values, course_of(values))

    assert move is not None
    assert 100 <= move.first <= 135
    assert 165 <= move.last <= 200


@pytest.mark.parametrize(
    "level",
    [
        lambda step: 0.9982 if step > 200 else 1.0,
        lambda step: 0.3 + step / 1000,
        lambda step: 0.5,
        lambda step: 0.7 if 100 < step < 200 else 0.65,
    ],
)
@pytest.mark.parametrize("noise", [0.0001, 0.01])
def test_what_is_no_fall(level: Callable[[int], float], noise: float) -> None:
    """A fall by 0.2 %, a rise, a level, and a reward that rose a little and went back by less than a twelfth."""
    values = course(level, noise=noise)
    move = fall_of(values, course_of(values))

    assert move is None or move.before - move.after > 0.04


@pytest.mark.parametrize("keeps", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("steps", [60, 300])
def test_noise_is_no_fall(keeps: float, steps: int) -> None:
    """Values that lean on each other wander; at most 1 of 100 series without a change is said to have fallen."""
    chance = np.random.default_rng(steps)
    fell = 0
    for _ in range(100):
        noise = np.zeros(steps)
        for step, shock in enumerate(chance.normal(size=steps)):
            noise[step] = keeps * noise[step - 1] * (step > 0) + shock
        values = series((0.5 + 0.05 * noise).tolist())
        fell += fall_of(values, course_of(values)) is not None

    assert fell <= 1


@given(st.floats(-100, 100), st.floats(0.1, 100), st.integers(30, 250))
def test_the_step_does_not_depend_on_the_unit(level: float, scale: float, at: int) -> None:
    """A shift and a scale of all values leave the place where they are."""
    values = course(lambda step: 1.0 if step < at else 0.0, noise=0.05)
    shown = Series(values.steps, level + scale * values.values)

    assert move_of(shown, level + scale, level).first == move_of(values, 1.0, 0.0).first == at


def test_since_when_it_is_flat() -> None:
    """A rise that ended is flat from there on; one that goes on is not."""
    assert (flat_since(course_of(course(lambda step: min(0.8, 0.3 + step / 200)))) or 0) in range(80, 140)
    assert flat_since(course_of(course(lambda step: 0.3 + step / 600))) is None


def jump(before: float, after: float, at: int = 120) -> Series:
    return course(lambda step: before if step < at else after)


EARNED = series([0.5 + 0.03 * (step % 3) if step < 120 else 1.0 for step in range(300)])
"""A part that all completions earn from step 120 on: it has no contrast there."""


@pytest.mark.parametrize(
    ("parts", "fallen"),
    [
        ({"reward/verifier": jump(0.7, 0.2), "reward/format": EARNED}, {"reward/verifier"}),
        ({"tests_reward": jump(0.6, 0.3), "length_reward": course(lambda step: step / 300)}, {"tests_reward"}),
        ({"rewards/a/mean": jump(0.5, 0.1), "rewards/b/mean": jump(0.1, 0.9)}, {"rewards/a/mean"}),
        ({"reward/accuracy": course(lambda _: 0.3), "reward/format": EARNED}, set[str]()),
        ({"reward/helpful": course(lambda _: 0.3), "reward/length": EARNED}, set[str]()),
    ],
)
def test_a_reward_that_is_paid_for_something_else(parts: dict[str, Series], fallen: set[str]) -> None:
    """A part that paid before falls, or stays low, while another one that is not the aim pays."""
    total = Series(np.arange(300), np.sum([part.values for part in parts.values()], axis=0))
    paid = paid_reward(total, parts)

    assert paid is not None
    assert paid.misses_aim
    assert {*paid.fallen} == fallen


@pytest.mark.parametrize(
    "parts",
    [
        {"reward/accuracy": course(lambda step: 0.3 + step / 600), "reward/format": jump(0.2, 0.98)},
        {"reward/accuracy": course(lambda step: 0.3 + step / 600), "reward/format": series([1.0] * 300)},
        {"reward/accuracy": course(lambda step: 0.3 + step / 600), "reward/length": course(lambda s: -s / 3000)},
        {"reward/accuracy": course(lambda _: 0.99, noise=0.001), "reward/format": jump(0.2, 0.98)},
        {"reward/a": jump(0.3, 0.6), "reward/b": jump(0.2, 0.5)},
        {"reward/a": jump(0.3, 0.6), "reward/b": course(lambda _: 0.2)},
        {"reward/accuracy": course(lambda step: 0.3 + step / 600), "reward/brevity": course(lambda s: 0.9 - s / 600)},
    ],
)
def test_a_reward_that_is_earned(parts: dict[str, Series]) -> None:
    """Parts that rise, a format that is learned first, a penalty that grows, a solved task, and answers for a bonus."""
    total = Series(np.arange(300), np.sum([part.values for part in parts.values()], axis=0))
    paid = paid_reward(total, parts)

    assert paid is None or not paid.misses_aim
