"""The states that a run can be in, and how sure a conclusion can be."""

from __future__ import annotations

from typing import Literal

State = Literal["live", "hung", "finished", "failed", "cancelled", "crashed", "lost", "empty"]
"""The state of a run: it goes on, it goes on but nothing happens, how it ended, or nothing was recorded."""
Sure = Literal["certain", "likely", "possible", "unknown"]
"""Read from records or seen, inferred by a test with a stated error, a pattern that fits, or not explained at all."""


def goes_on(state: State) -> bool:
    """Return whether more may be recorded."""
    return state in ("live", "hung")
