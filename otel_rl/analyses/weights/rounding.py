"""Floating-point formats of weights, and whether a number is another one after honest casts.

Source: IEEE 754 and the OCP 8-bit formats, as torch and ml_dtypes name them. Casts round to nearest, ties to even.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Format(NamedTuple):
    """A format: bits of the fraction, the exponent of the smallest normal number, and the largest number."""

    fraction: int
    lowest: int
    largest: float


FORMATS = {
    "float32": Format(23, -126, (2 - 2**-23) * 2.0**127),
    "bfloat16": Format(7, -126, (2 - 2**-7) * 2.0**127),
    "float16": Format(10, -14, 65504.0),
    "float8_e4m3fn": Format(3, -6, 448.0),
    "float8_e4m3fnuz": Format(3, -7, 240.0),
    "float8_e5m2": Format(2, -14, 57344.0),
    "float8_e5m2fnuz": Format(2, -15, 57344.0),
}
"""The formats but double precision, in which all of their numbers are exact."""
_VIA = ("", "bfloat16", "float16", "float32")
"""Formats that weights may pass through on their way from one side to the other."""


def rounded(value: float, dtype: str) -> float:
    """Return the number nearest to a value in a format; an infinity beyond the largest one."""
    known = FORMATS.get(dtype)
    if known is None or value == 0 or not math.isfinite(value):
        return value
    exponent = max(math.frexp(value)[1] - 1, known.lowest)
    unit = math.ldexp(1.0, exponent - known.fraction)
    nearest = round(value / unit) * unit
    return nearest if abs(nearest) <= known.largest else math.copysign(math.inf, value)


def is_cast(pairs: Sequence[tuple[float, float]], from_dtype: str, to_dtype: str) -> bool:
    """Return whether all second numbers are the first ones after the same casts, in either direction."""
    if all(map(_is_same, pairs)):
        return True
    back = [(second, first) for first, second in pairs]
    return any(_are(pairs, via, to_dtype) or _are(back, via, from_dtype) for via in _VIA if via != to_dtype)


def _are(pairs: Iterable[tuple[float, float]], via: str, dtype: str) -> bool:
    largest = FORMATS[dtype].largest if dtype in FORMATS else math.inf
    return all(_is_same((rounded(rounded(first, via), dtype), second), largest) for first, second in pairs)


def _is_same(pair: tuple[float, float], largest: float = math.inf) -> bool:
    """Return whether two numbers are equal; what is too large for a format may be its largest number, or NaN."""
    expected, held = pair
    if expected == held or (math.isnan(expected) and math.isnan(held)):
        return True
    return math.isinf(expected) and (math.isnan(held) or math.copysign(1, expected) * held >= largest)
