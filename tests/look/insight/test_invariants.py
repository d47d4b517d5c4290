"""Invariants of every run: shares sum to 1, the order of ranks does not matter, a constant has no change."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.look.insight import Facts, facts_of
from otel_rl.look.insight.phases import PhaseTimes, shares_of
from otel_rl.look.insight.series import Series, long_run_variance, t_quantile
from otel_rl.look.insight.shifts import shifts
from otel_rl.recorder.facts import wording
from tests.look.insight.played import PHASES, Played, play

LEVELS = st.floats(1e-6, 1e6)


def series(values: Sequence[float]) -> Series:
    return Series(np.arange(len(values), dtype=np.int64), np.array(values, np.float64))


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e9), max_size=8), st.floats(0, 1e9), st.integers(1, 64))
def test_shares_sum_to_one(seconds: dict[str, float], outside: float, ranks: int) -> None:
    """Whatever the phases take, and if there is time outside of them."""
    total = sum(seconds.values()) + outside
    shares = shares_of(PhaseTimes({f"p{name}": spent for name, spent in seconds.items()}, total, ranks))

    assert all(share.share >= 0 for share in shares)
    assert sum(share.share for share in shares) == pytest.approx(1 if total else 0)


@given(LEVELS, st.integers(0, 400))
def test_a_constant_has_no_change(level: float, count: int) -> None:
    """However long it is."""
    assert shifts(series([level] * count), 0.01) == []


@given(LEVELS, st.floats(1.1, 100), st.integers(8, 300), st.integers(8, 300))
def test_a_step_is_found_where_it_is(level: float, factor: float, before: int, after: int) -> None:
    """Without noise, exactly; in a series that is far too long for a look at each place, too."""
    (shift,) = shifts(series([level] * before + [level * factor] * after), 0.08)

    assert (shift.step, shift.first, shift.last) == (before, 0, before + after - 1)
    assert (shift.before, shift.after) == (level, level * factor)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([0.0, 0.5, 0.8]), st.sampled_from([60, 300, 3000]))
def test_noise_is_no_change(seed: int, correlation: float, count: int) -> None:
    """Values of neighboring steps may be correlated: a change of 8 % is never seen in noise of 3 %."""
    noise = np.random.default_rng(seed).normal(size=count)
    for n in range(1, count):
        noise[n] = correlation * noise[n - 1] + math.sqrt(1 - correlation**2) * noise[n]

    assert shifts(series(40 * np.exp(0.03 * noise)), 0.08) == []


@given(st.lists(st.floats(0.5, 2), min_size=16, max_size=60), st.integers(-20, 20))
def test_changes_do_not_depend_on_the_unit(values: list[float], exponent: int) -> None:
    """Seconds or milliseconds: the same steps."""
    factor = 2.0**exponent

    assert [shift.step for shift in shifts(series(values), 0.08)] == [
        shift.step for shift in shifts(series([value * factor for value in values]), 0.08)
    ]


def test_what_is_not_finite_is_left_out() -> None:
    """NaN hides no change, and is none."""
    values = [1.0, math.nan] * 20 + [2.0, math.inf] * 20

    assert [shift.step for shift in shifts(series(values), 0.1)] == [40]


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.706), (2, 4.303), (4, 2.776), (10, 2.228), (30, 2.042)])
def test_quantiles_of_t(freedom: int, expected: float) -> None:
    """As in every table."""
    assert t_quantile(0.05, freedom) == pytest.approx(expected, abs=0.01)


def test_the_long_run_variance_of_white_noise() -> None:
    """It is the variance."""
    variances = [long_run_variance(np.random.default_rng(n).normal(size=500))[0] for n in range(200)]

    assert np.mean(variances) == pytest.approx(1, abs=0.05)


def _runs(tmp_path_factory: pytest.TempPathFactory, order: Sequence[int]) -> Facts:
    """Return the facts of a run whose ranks have these times, in another order."""
    dice = random.Random(3)
    factors = [[math.exp(dice.gauss(0, 0.02)) for _ in PHASES] for _ in range(3 * 60)]

    def phases(step: int, rank: int) -> dict[str, float]:
        place = order[rank]
        slow = 1.5 if place == 2 and step >= 20 else 1.0
        of_rank = factors[step * 3 + place]
        return {
            phase: seconds * factor * (slow if phase == "generate" else 1)
            for (phase, seconds), factor in zip(PHASES.items(), of_rank, strict=True)
        }

    training = Played(ranks=3, hosts=("a", "a", "a"), phases=phases, values=lambda step, _: {"reward": step / 60})
    return facts_of(play(tmp_path_factory.mktemp("run") / "run", training, 60))


def test_the_order_of_ranks_does_not_matter(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Only the number of the rank that is named changes."""
    first, other = _runs(tmp_path_factory, [0, 1, 2]), _runs(tmp_path_factory, [2, 0, 1])
    swapped = [re.sub(r"\b([Rr])ank 0\b", r"\1ank 2", finding.sentence) for finding in other.findings]

    assert [finding.sentence for finding in first.findings] == swapped
    assert any("on rank 2" in finding.sentence for finding in first.findings)
    assert [share.name for share in first.shares] == [share.name for share in other.shares]
    assert [share.share for share in first.shares] == pytest.approx([share.share for share in other.shares])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (0.00012, "0.00012"), (0.0123, "0.0123"), (0.99999, "1"), (1.2e-7, "1.2e-7"), (41, "41")),
        *((41.26, "41.3"), (999.7, "1,000"), (1180, "1,180"), (1234567, "1.23e6"), (-0.5, "-0.5"), (math.nan, "NaN")),
    ],
)
def test_numbers(value: float, text: str) -> None:
    """Three significant digits, and no zeros behind the point."""
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0 s"), (0.00012, "0.12 ms"), (0.9999, "1 s"), (41.23, "41.2 s"), (59.99, "1 min"), (192, "3 min 12 s")),
        *((3599.6, "1 h"), (11520, "3 h 12 min"), (86399, "1 d"), (90000, "1 d 1 h"), (math.nan, "unknown")),
    ],
)
def test_times(value: float, text: str) -> None:
    """As people say them."""
    assert wording.seconds(value) == text


@given(st.floats(1e-9, 1e7))
def test_times_are_near_what_they_say(value: float) -> None:
    """A text read back is within 2 % of the value, and has at most two units."""
    units = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
    parts = wording.seconds(value).replace(",", "").split()
    back = sum(float(number) * units[unit] for number, unit in zip(parts[::2], parts[1::2], strict=True))

    assert len(parts) in (2, 4)
    assert back == pytest.approx(value, rel=0.02)


def test_other_texts() -> None:
    """Bytes, shares, counts and lists."""
    assert wording.memory(40 * 2**20) == "40 MiB"
    assert wording.memory_of(71.2 * 2**30, 80 * 2**30) == "71.2 of 80 GiB"
    assert [wording.percent(share) for share in (0, 0.0004, 0.004, 0.61, 1)] == [
        *("0 %", "less than 0.1 %", "0.4 %", "61 %", "100 %"),
    ]
    assert [wording.count(n, "step") for n in (1, 1200)] == ["1 step", "1,200 steps"]
    assert [wording.names("abcde"[:n]) for n in (1, 2, 3, 5)] == ["a", "a and b", "a, b and c", "a, b, c and 2 more"]
    assert wording.large(12_300_000) == "12.3 M"
