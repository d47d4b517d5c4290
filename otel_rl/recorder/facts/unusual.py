"""How unusual the time is that something takes, against the time that it took before."""

from __future__ import annotations

from otel_rl.recorder.facts import wording

LEAST_S, LEAST_TIMES = 5.0, 5.0
"""Seconds, and times the usual time, from which on a time is unusual: shorter ones come with the load of a machine."""
_MOST_TIMES = 1_000_000


def is_unusual(seconds: float, usual: float | None) -> bool:
    """Return whether something takes far longer than before; unknown if it never ended before, which is not unusual."""
    return usual is not None and seconds >= LEAST_S and seconds >= LEAST_TIMES * usual


def how_unusual(seconds: float, usual: float | None) -> str:
    """Return a time in words against the usual one, such as `150 times its usual time (370 ms)`; empty if unknown."""
    if usual is None or usual <= 0 or seconds < usual:
        return ""
    times = min(seconds / usual, _MOST_TIMES)
    if times < 2:
        return f"its usual time ({wording.seconds(usual)})"
    return f"{wording.number(wording.significant(times))} times its usual time ({wording.seconds(usual)})"
