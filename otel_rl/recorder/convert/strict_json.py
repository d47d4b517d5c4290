"""Strings for NaN and the infinities in strict JSON."""

from __future__ import annotations

import math
from typing import TypeVar

T = TypeVar("T")
SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The floats that JSON numbers cannot represent, by their string."""


def spelled(value: T) -> T | str:
    """Return the value, or `"NaN"`, `"Infinity"` or `"-Infinity"` for a float that is one of these."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
