"""Numbers, times and amounts in words: one rule of rounding, and no step between two units."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.facts import wording

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1e-4, "less than 0.1 %"),
        (0.004, "0.4 %"),
        (0.0096, "1 %"),
        (0.145, "15 %"),
        (0.612, "61 %"),
        (0.995, "99.5 %"),
        (0.997, "99.7 %"),
        (0.99999, "99.9 %"),
        (1, "100 %"),
        (-0.004, "-0.4 %"),
        (math.nan, "unknown"),
    ],
)
def test_percent(share: float, text: str) -> None:
    """Almost nothing is not 0 %, and almost all is not 100 %."""
    assert wording.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.995, "10"),
        (2.675, "2.68"),
        (-2.675, "-2.68"),
        (0.9995, "1"),
        (99.95, "100"),
        (999.5, "1,000"),
        (2.5e2 + 0.5, "251"),
        (999_600, "999,600"),
        (999_999.5, "1e6"),
        (9.996e-5, "0.0001"),
        (5e-324, "5e-324"),
        (math.inf, "inf"),
    ],
)
def test_halves_are_rounded_away_from_zero(value: float, text: str) -> None:
    """Of the decimal number that a person reads, also where the double is below it or the next digit counts up."""
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00012, "0.12 ms"),
        (0.9994, "999 ms"),
        (0.9995, "1 s"),
        (59.94, "59.9 s"),
        (59.95, "1 min"),
        (3599.5, "1 h"),
        (3630, "1 h 1 min"),
        (84_600, "23 h 30 min"),
        (86_399, "1 d"),
        (90_000, "1 d 1 h"),
        (-41, "-41 s"),
    ],
)
def test_seconds_have_no_sixtieth(value: float, text: str) -> None:
    """A time that is rounded up to the next unit is said in that unit."""
    assert wording.seconds(value) == text


def test_bytes_have_no_1024th() -> None:
    """1,023.9 MiB are a GiB."""
    assert wording.memory(1023.9 * 2**20) == "1 GiB"
    assert wording.memory(1023.4 * 2**20) == "1,023 MiB"


def test_large_amounts_have_no_thousandth() -> None:
    """A number that is rounded up to the next unit is said in that unit."""
    assert [wording.large(value) for value in (1180, 999_999.7, 12.3e6, 999.7e6)] == ["1,180", "1 M", "12.3 M", "1 G"]


@given(FLOATS, st.integers(0, 4))
def test_fixed_is_the_decimal_rule(value: float, decimals: int) -> None:
    """A number with some decimals is what decimal arithmetic makes of its shortest text, half up."""
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP) if abs(value) < 1e20 else None
    if rounded is not None:
        assert Decimal(wording.fixed(value, decimals).replace(",", "")) == rounded


@given(st.floats(-1e300, 1e300))
def test_three_digits(value: float) -> None:
    """A number has three significant digits: it is within half of the third one."""
    read = float(wording.number(value).replace(",", ""))
    assert read == pytest.approx(value, rel=0.00501, abs=1e-323)


def test_times_of_any_number() -> None:
    """A file of somebody else may have any; the shown time is in the years from 1970 to 9999."""
    assert wording.date(10**30) == "9999-12-31 23:59:59 UTC"
    assert wording.date(-(10**30)) == "1970-01-01 00:00:00 UTC"
    assert len(wording.clock(10**30)) == len(wording.clock(-(10**30))) == len("12:04:07")
