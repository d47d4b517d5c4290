"""Short texts of screens: ages, states, phases, numbers of a fixed width."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.semconv.phase_categories import CATEGORIES
from otel_rl.view.terminal import drawing
from otel_rl.view.terminal.lines import Span, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.now import PhaseTime
    from otel_rl.insight.facts import State
    from otel_rl.view.terminal.lines import Line, Style

_NS = 1e9
_SHORT_S = 1e-3
_VAGUE = ("mean", "avg", "average", "std", "min", "max", "sum", "total", "value", "rate", "ratio", "count")
"""Last components of names that say nothing alone."""
_STATES: dict[State, tuple[str, Style]] = {
    "live": ("●", "good"),
    "hung": ("●", "bad"),
    "finished": ("○", "note"),
    "failed": ("✗", "bad"),
    "crashed": ("✗", "bad"),
    "lost": ("✗", "bad"),
    "empty": ("○", "dim"),
}


def state(of: State, *, lacks: bool = False) -> Span:
    """Return a state with its sign, and a mark if a run that goes on lacks a process."""
    sign, style = _STATES[of]
    return Span(f"{sign} {of} !", "bad") if of == "live" and lacks else Span(f"{sign} {of}", style)


def number(value: float | None) -> str:
    """Return a value of a curve; `None` is one that is not finite."""
    return "nan" if value is None or math.isnan(value) else wording.number(value)


def time_of(seconds: float) -> str:
    """Return a duration in few characters: `9.7 µs`, `41 s`, `3 m 12 s`, `3 h 12 m`, `2 d 4 h`."""
    if 0 < seconds < _SHORT_S:
        return f"{wording.number(seconds * 1e6)} µs"
    return wording.seconds(seconds).replace(" min", " m")


def left(seconds: float) -> str:
    """Return a time that is still to come, to the second."""
    return time_of(max(1, round(seconds)))


def seen(since: int, at: int) -> str:
    """Return how long ago something was, in the largest unit alone; nothing if that is unknown."""
    if not since:
        return ""
    seconds = max(0, round((at - since) / _NS))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}"
    return f"{seconds} s"


def age(since: int, at: int) -> str:
    """Return how long ago something was, in Unix nanoseconds; a clock that is behind counts as now."""
    return time_of(max(0, round((at - since) / _NS)))


def phase(name: str) -> str:
    """Return the name of a phase; time in no phase has none."""
    return safe(name) if name else "not in any phase"


def tail(name: str, cells: int) -> str:
    """Return a name without its beginning, if all of it has no room; whole components go first."""
    text = safe(name)
    while len(text) > cells and "/" in text:
        shorter = text.partition("/")[2]
        if shorter in _VAGUE:
            return f"…{text[1 - cells :]}"
        text = shorter
    return text


def stacked(phases: Sequence[PhaseTime], cells: int) -> Line:
    """Draw the time of phases as a bar, in the order of the RL loop."""
    order: dict[str, int] = {category: number for number, category in enumerate(CATEGORIES)}
    in_order = sorted(phases, key=lambda one: order.get(one.category, len(order)))
    return drawing.bar([(one.seconds, one.category) for one in in_order], cells)


def shares(phases: Sequence[PhaseTime], cells: int) -> str:
    """Return the shares of the longest phases in percent, by the first letters of their names: `gen 61 upd 24`."""
    total = sum(one.seconds for one in phases)
    text = ""
    for one in phases:
        more = (
            f"{text} {safe(one.name.removeprefix('rl.'))[:3]} {100 * one.seconds / total:.0f}".lstrip()
            if one.name and total > 0
            else text
        )
        if len(more) > cells:
            break
        text = more
    return text
