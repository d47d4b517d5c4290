"""The range of a curve: outliers do not flatten it, noise is nearly flat, and both languages have the same rule."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess

import pytest

from otel_rl.look.page.scripts import script
from otel_rl.recorder.facts.ranges import ValueRange, value_range
from tests.real_parts import needs_program

_RUN = """
const series = JSON.parse(require("fs").readFileSync(0, "utf8"));
const {valueRange} = $ranges;
console.log(JSON.stringify(series.map((values) => valueRange(values.map((value) => value ?? NaN)))));
"""


def _noise(count: int, size: float) -> list[float]:
    dice = random.Random(1)
    return [dice.gauss(0, size) for _ in range(count)]


def test_one_outlier() -> None:
    """It is outside of the range, which the other values fill."""
    values = [1 + value for value in _noise(200, 0.1)]

    assert value_range([*values[:60], 950.0, *values[60:]]) == value_range(values)


def test_a_run_that_diverged_at_its_end() -> None:
    """The steps before are not flattened."""
    values = [0.5 * math.exp(-n / 80) for n in range(190)] + [10.0**n for n in range(8)]

    assert value_range(values).high < 10


def test_a_change_of_level() -> None:
    """Both levels are inside."""
    shown = value_range([0.9 + value for value in _noise(170, 0.003)] + [0.2] * 30)

    assert shown.low == 0.2
    assert shown.high > 0.9


def test_noise_of_half_a_percent() -> None:
    """It fills less than a half of the height."""
    values = [0.84 * (1 + value) for value in _noise(200, 0.005)]
    shown = value_range(values)

    assert max(values) - min(values) < 0.7 * (shown.high - shown.low)


@pytest.mark.parametrize("constant", [0.0, 1.0, -3.0])
def test_one_value(constant: float) -> None:
    """It is in the middle."""
    shown = value_range([constant] * 3)

    assert (shown.low + shown.high) / 2 == constant


def test_many_decades() -> None:
    """A logarithmic axis helps; not with zero, and not for a single outlier."""
    values = [1e-4 * 10 ** (n / 50) for n in range(200)]

    assert value_range(values) == ValueRange(values[0], values[-1], is_log=True)
    assert not value_range([0.0, *values]).is_log
    assert not value_range([*[1.0] * 100, 1e6]).is_log


def test_nothing_finite() -> None:
    """There is a range all the same."""
    assert value_range([None, math.nan, math.inf]) == ValueRange(0.0, 1.0)


@needs_program("node")
def test_both_languages_have_the_same_rule() -> None:
    """The page and the terminal show the same range of 500 series, long ones with values that are not finite too."""
    dice = random.Random(0)
    series = []
    for _ in range(500):
        count, size, middle = dice.randint(0, 300), 10 ** dice.uniform(-5, 3), dice.choice((0.0, 1.0, -20.0, 1e6))
        values: list[float | None] = [middle + dice.gauss(0, size) for _ in range(count)]
        values += [dice.choice((1e9, -1e9, None, 0.0)) for _ in range(dice.randint(0, 3))]
        series.append([abs(value) if value else value for value in values] if dice.random() < 0.3 else values)
    series.append([dice.random() for _ in range(10_001)])
    program = [str(shutil.which("node")), "-e", f"{script('ranges')}\n{_RUN}"]
    answered = subprocess.run(program, check=True, input=json.dumps(series), capture_output=True, text=True)

    expected = [value_range(values)._asdict() for values in series]
    shown = json.loads(answered.stdout)
    assert [(one["low"], one["high"], one["log"]) for one in shown] == [
        (one["low"], one["high"], one["is_log"]) for one in expected
    ]
