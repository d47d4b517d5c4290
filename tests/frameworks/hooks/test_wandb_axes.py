"""The steps of values of W&B, by the axes that a script declares."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from otel_rl.frameworks.wandb_axes import Axes


def steps(declared: dict[str, str | None], *calls: dict[str, Any], given: int | None = None) -> list[dict[Any, Any]]:
    """Return the values of each call by their steps."""
    axes, counter = Axes(lambda *_: None), count()
    for name, axis in declared.items():
        axes.define(name, axis)
    return [axes.by_step(values, given, next(counter)) for values in calls]


def test_the_axis_of_everything() -> None:
    """As prime-rl declares it: several calls of one step are one row; a call without the axis has its last value."""
    found = steps({"*": "step"}, {"loss": 1.0, "step": 8}, {"lr": 0.5, "step": 8}, {"kl": 2.0})

    assert found == [{8: {"loss": 1.0}}, {8: {"lr": 0.5}}, {8: {"kl": 2.0}}]


def test_each_group_has_its_axis() -> None:
    """As slime declares them: a call may have values of several axes, each at its own step."""
    declared = {"train/step": None, "train/*": "train/step", "rollout/*": "rollout/step", "perf/*": "rollout/step"}
    found = steps(declared, {"train/a": 1, "train/step": 7, "perf/b": 2, "rollout/step": np.int64(3)}, {"perf/c": 4})

    assert found == [{7: {"train/a": 1}, 3: {"perf/b": 2}}, {3: {"perf/c": 4}}]


def test_the_longest_name_counts() -> None:
    """A name itself, then the longest prefix, in whichever order they were declared."""
    declared = {"*": "a", "eval/*": "b", "eval/x": "c"}
    call = {"eval/x": 1, "eval/y": 2, "z": 3, "a": 10, "b": 20, "c": 30}

    assert steps(declared, call) == steps(dict(reversed(declared.items())), call)
    assert steps(declared, call) == [{30: {"eval/x": 1}, 20: {"eval/y": 2}, 10: {"z": 3}}]


def test_without_a_declared_axis() -> None:
    """The step of the call, else a usual axis in it, else the counter; what is not the step is a value."""
    call = {"loss": 1.0, "step": 5}

    assert steps({}, call, given=9) == [{9: call}]
    assert steps({}, call, {"loss": 2.0}) == [{5: {"loss": 1.0}}, {1: {"loss": 2.0}}]
    assert steps({}, {"train/step": 4, "x": 1}) == [{4: {"x": 1}}]


def test_metrics_beyond_the_axis_of_others() -> None:
    """Only metrics that were declared have that axis; those of other calls keep W&B's counter, so that none is lost."""
    calls = (
        {"loss": 0},
        {"eval/step": 50, "eval/score": 1},
        {"loss": 2},
        {"loss": 3, "eval/step": 60, "eval/score": 4},
    )
    found = steps({"eval/*": "eval/step"}, *calls)

    assert found == [
        {0: {"loss": 0}},
        {50: {"eval/score": 1}},
        {2: {"loss": 2}},
        {3: {"loss": 3}, 60: {"eval/score": 4}},
    ]


def test_an_axis_that_is_not_a_step() -> None:
    """Times and fractions are not steps: such values are at the last step of all others, or at the counter."""
    timed = steps({"*": "step", "load/*": "_timestamp"}, {"a": 1, "step": 4}, {"load/b": 2, "_timestamp": 1.7e9})
    epochs = [{"eval/a": n, "epoch": epoch} for n, epoch in enumerate((0.5, 1.0))]

    assert timed == [{4: {"a": 1}}, {4: {"load/b": 2}}]
    assert steps({"eval/*": "epoch"}, *epochs) == [{0: epochs[0]}, {1: {"eval/a": 1}}]


def test_an_axis_that_was_never_logged() -> None:
    """The step of the call or the counter, so that calls stay apart."""
    assert steps({"*": "step"}, {"a": 1}, {"a": 2}) == [{0: {"a": 1}}, {1: {"a": 2}}]


def test_an_axis_that_is_declared_again() -> None:
    """A later declaration of something else leaves the axis, unless it overwrites."""
    axes = Axes(lambda *_: None)
    for name in "xy":
        axes.define(name, "env")
        axes.define(name, None, overwrite=name == "y")

    assert axes.by_step({"x": 1.0, "y": 2.0, "env": 50}, None, 3) == {50: {"x": 1.0}, 3: {"y": 2.0}}


def test_a_tracker_without_usual_axes() -> None:
    """`step` among the values is a value, if nobody has declared it."""
    axes = Axes(lambda *_: None, usual=())

    assert axes.by_step({"x": 1.0, "step": 50}, None, 3) == {3: {"x": 1.0, "step": 50}}


def test_one_line_for_an_axis_that_is_not_a_step() -> None:
    """It names the tracker and the axis."""
    texts: list[str] = []
    axes = Axes(lambda text, *details: texts.append(text % details), "swanlab")
    axes.define("*", "env")
    axes.by_step({"x": 1.0, "env": 0.5}, None, 3)

    assert texts == ["swanlab: a value of the axis env is not a step, such as 0.5; its rows follow the last one"]
