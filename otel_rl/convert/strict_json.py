"""How floats that JSON has no number for are written, wherever it has to be strict."""

from __future__ import annotations

import math
from typing import TypeVar

T = TypeVar("T")
SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Floats that JSON has no number for, by how they are written."""


def spelled(value: T) -> T | str:
    """Return the value, or `"NaN"`, `"Infinity"` or `"-Infinity"` for a float that is one of these."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
