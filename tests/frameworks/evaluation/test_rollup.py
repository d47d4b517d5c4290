"""Roll-ups of runs to tasks and steps: Trinity-RFT's worked example, and estimators over k runs."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.frameworks.evaluation import at_k, rollup
from otel_rl.frameworks.evaluation.rollup import Name

RUNS = [[0.8, 0.9], [0.6, 0.9], [0.95, 0.85]]
TASKS = [[{"accuracy": value} for value in runs] for runs in RUNS]


def test_each_task() -> None:
    """Mean, deviation of the population, best and worst of two runs."""
    found = [at_k.of_task(runs) for runs in RUNS]

    assert [task["mean@2"] for task in found] == pytest.approx([0.85, 0.75, 0.9])
    assert [task["std@2"] for task in found] == pytest.approx([0.05, 0.15, 0.05])
    assert [task["best@2"] for task in found] == [0.9, 0.9, 0.95]
    assert [task["worst@2"] for task in found] == [0.8, 0.6, 0.85]


def test_a_step_of_training() -> None:
    """Mean, maximum and minimum are of the means of tasks."""
    tasks = [rollup.of_task(runs) for runs in TASKS]

    assert rollup.of_step(tasks, "rollout") == pytest.approx(
        {"rollout/accuracy/mean": 0.8333333333333334, "rollout/accuracy/max": 0.9, "rollout/accuracy/min": 0.75}
    )


def test_an_evaluation() -> None:
    """The statistics of tasks are averaged: std@2 is the mean of deviations, not the deviation of all six runs."""
    assert rollup.of_evaluation(TASKS, "eval/dummy") == pytest.approx(
        {
            "eval/dummy/accuracy/mean@2": 0.8333333333333334,
            "eval/dummy/accuracy/std@2": 0.08333333333333333,
            "eval/dummy/accuracy/best@2": 0.9166666666666666,
            "eval/dummy/accuracy/worst@2": 0.75,
        }
    )


def test_an_evaluation_in_detail() -> None:
    """Each statistic has its own mean, maximum, minimum and deviation of the population over tasks."""
    found = rollup.of_evaluation(TASKS, "eval/dummy", detailed=True)
    expected = {
        "mean@2/mean": 0.8333333333333334,
        "mean@2/std": 0.06236095644623235,
        "mean@2/max": 0.9,
        "mean@2/min": 0.75,
        "std@2/mean": 0.08333333333333333,
        "std@2/std": 0.04714045207910317,
        "std@2/max": 0.15,
        "std@2/min": 0.05,
    }

    assert {name: found[f"eval/dummy/accuracy/{name}"] for name in expected} == pytest.approx(expected)
    assert len(found) == 16


def test_the_other_estimator_of_best_and_worst() -> None:
    """The expected best of two draws with replacement is 0.75·max + 0.25·min."""
    found = rollup.of_evaluation(TASKS, "eval/dummy", estimator="bootstrap")

    assert [at_k.best_at_k(runs, estimator="bootstrap") for runs in RUNS] == pytest.approx([0.875, 0.825, 0.925])
    assert [at_k.worst_at_k(runs, estimator="bootstrap") for runs in RUNS] == pytest.approx([0.825, 0.675, 0.875])
    assert found["eval/dummy/accuracy/best@2"] == pytest.approx(0.875)
    assert found["eval/dummy/accuracy/worst@2"] == pytest.approx(0.7916666666666666)


def test_drawing_approaches_the_expectation() -> None:
    """A thousand draws come near; they are the same each time, and the global generator does not move."""
    before = random.getstate()
    first, second = (at_k.drawn(RUNS[0], 2, max) for _ in range(2))

    assert first == second == pytest.approx(0.875, abs=0.005)
    assert random.getstate() == before


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=5), st.integers(1, 3))
def test_the_expectation_is_that_of_all_draws(runs: list[int], k: int) -> None:
    """The closed form equals the mean over every way to draw."""
    draws = list(itertools.product(runs, repeat=k))

    assert at_k.best_at_k(runs, k, estimator="bootstrap") == pytest.approx(sum(map(max, draws)) / len(draws))
    assert at_k.worst_at_k(runs, k, estimator="bootstrap") == pytest.approx(sum(map(min, draws)) / len(draws))


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_unbiased(runs: list[bool], data: st.DataObject) -> None:
    """It equals the share of all subsets of k runs that hold a correct one."""
    k = data.draw(st.integers(1, len(runs)))
    subsets = list(itertools.combinations(runs, k))

    assert at_k.pass_at_k(len(runs), sum(runs), k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "correct", "k"), [(0, 0, 1), (4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_of_what_cannot_be(n: int, correct: int, k: int) -> None:
    """Wrong counts raise."""
    with pytest.raises(ValueError, match="needs"):
        at_k.pass_at_k(n, correct, k)


def test_the_majority() -> None:
    """The most frequent answer counts; of equally frequent ones the first."""
    assert at_k.maj_at_k(["7", "8", "8"], [1.0, 0.0, 0.0]) == 0.0
    assert at_k.maj_at_k(["7", "8"], [1.0, 0.0]) == 1.0
    with pytest.raises(ValueError, match="0 answers"):
        at_k.maj_at_k([], [])


def test_no_runs() -> None:
    """There is no best of nothing."""
    with pytest.raises(ValueError, match="no runs"):
        at_k.best_at_k([])


def test_durations_are_only_averaged() -> None:
    """The time of a task has no best and worst of k."""
    tasks = [[{"time/task_execution": 1.0}, {"time/task_execution": 3.0}]]

    assert rollup.of_evaluation(tasks, "eval/dummy") == {"eval/dummy/time/task_execution": 2.0}


def test_one_task_has_the_names_of_many() -> None:
    """Names do not depend on the size of a batch."""
    one, two = (rollup.of_step([{"accuracy": 1.0}] * n, "rollout") for n in (1, 2))

    assert list(one) == list(two)


def test_a_run_is_the_mean_of_its_experiences() -> None:
    """A metric that only some have is the mean of those."""
    assert rollup.of_run([{"reward": 0.8, "format": 1.0}, {"reward": 0.9}]) == pytest.approx(
        {"reward": 0.85, "format": 1.0}
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rollout/accuracy/mean", Name("rollout", "accuracy", statistic="mean")),
        ("rollout/accuracy", Name("rollout", "accuracy")),
        ("eval/gsm8k/accuracy/mean@4", Name("eval", "accuracy", "gsm8k", "mean@4")),
        ("bench/math/acc/best@8/std", Name("bench", "acc", "math", "best@8/std")),
        ("eval/gsm8k/time/run_execution", Name("eval", "time/run_execution", "gsm8k")),
        ("rollout/max", Name("rollout", "max")),
        (
            "experience_pipeline/group_advantages/reward_mean/mean",
            Name("experience_pipeline", "group_advantages/reward_mean", statistic="mean"),
        ),
    ],
)
def test_names(text: str, name: Name) -> None:
    """A name is read into its parts, and written again as it was."""
    assert rollup.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize("text", ["", "rollout", "eval/gsm8k", "eval//accuracy", "a//b"])
def test_no_name(text: str) -> None:
    """Names with too few parts are refused."""
    with pytest.raises(ValueError, match="invalid name"):
        rollup.parse(text)
