"""The labelled scenarios of `python -m benchmarks verdicts`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.verdicts import catalogue
from benchmarks.verdicts.labels import Scenario
from benchmarks.verdicts.running import Trial

DOZEN = (
    "spinning_verifier",
    "loader_worker_killed",
    "child_pipe_full",
    "stale_requeued",
    "reward_worker_killed",
    "cleanup_of_checkpoints",
    "requests_one_at_a_time",
    "longer_completions",
    "gradient_is_zero",
    "clip_ratio_of_the_batch_width",
    "learns",
    "two_healthy_ranks",
)
"""Scenarios of each kind; `python -m benchmarks verdicts` runs all."""
THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")


@pytest.mark.parametrize("scenario", catalogue.of("all"), ids=lambda scenario: scenario.name)
def test_a_label_is_well_formed(scenario: Scenario) -> None:
    """Its expressions compile, and it has a public thread and a cause, unless it is a control."""
    label = scenario.label
    for expression in (*label.right, *label.place, *label.wrong, *label.plain):
        re.compile(expression)

    if scenario.kind == "control":
        assert (label.right, label.place, label.plain) == ((), (), ())
        assert not scenario.thread or THREAD.fullmatch(scenario.thread)
    else:
        assert label.right
        assert THREAD.fullmatch(scenario.thread)


def test_there_are_enough_scenarios_of_each_kind() -> None:
    """At least 80, each with a name of its own, and 25 of them healthy."""
    scenarios = catalogue.of("all")
    kinds = Counter(scenario.kind for scenario in scenarios)

    assert len({scenario.name for scenario in scenarios}) == len(scenarios) >= 80
    assert kinds["control"] >= 25
    assert kinds["hang"] >= 20
    assert min(kinds.values()) >= 8


def test_half_of_each_kind_is_sealed() -> None:
    """With a difference of one where their number is odd."""
    opened, sealed = (Counter(scenario.kind for scenario in catalogue.of(part)) for part in ("open", "sealed"))

    assert opened.keys() == sealed.keys()
    assert all(abs(opened[kind] - sealed[kind]) <= 1 for kind in opened)


def test_the_kept_ones_are_of_all_kinds() -> None:
    """At least five of each, and none is from a thread that another scenario is from."""
    threads = Counter(scenario.thread for scenario in catalogue.of("all") if scenario.thread)

    assert min(Counter(scenario.kind for scenario in catalogue.of("kept")).values()) >= 5
    assert max(threads[scenario.thread] for scenario in catalogue.of("kept")) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", DOZEN)
def test_a_dozen_is_right(name: str, tmp_path: Path) -> None:
    """The cause is named, and a healthy program is not accused."""
    judgment = Trial(catalogue.named(name), "calls", tmp_path).run()

    assert judgment.grade in {"right", "quiet"}, judgment.said
