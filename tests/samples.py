"""How often a test repeats a random or a tiring case: a part of the times, or with `ALL_SAMPLES=1` all of them.

Hypothesis draws the same examples in each run, and with `FRESH_EXAMPLES=1` new ones.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
IS_ALL = os.environ.get("ALL_SAMPLES") == "1"
IS_FRESH = os.environ.get("FRESH_EXAMPLES") == "1"


def of(part: T, whole: T) -> T:
    """Return the part, or the whole where it is asked for."""
    return whole if IS_ALL else part
