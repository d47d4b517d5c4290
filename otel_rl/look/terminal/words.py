"""Short texts of screens: ages, states, phases, numbers of a fixed width."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, safe
from otel_rl.look.terminal import drawing
from otel_rl.recorder.facts import wording
from otel_rl.semconv.phase_categories import CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.cli.lines import Line, Style
    from otel_rl.recorder.archive.now import PhaseTime
    from otel_rl.recorder.facts.order import Severity
    from otel_rl.recorder.facts.states import State

_NS = 1e9
_VAGUE = ("mean", "avg", "average", "std", "min", "max", "sum", "total", "value", "rate", "ratio", "count")
"""Last components of names that say nothing alone."""
_STATES: dict[State, tuple[str, Style]] = {
    "live": ("●", "good"),
    "hung": ("●", "bad"),
    "finished": ("○", "good"),
    "failed": ("✗", "bad"),
    "cancelled": ("○", "note"),
    "crashed": ("✗", "bad"),
    "lost": ("✗", "bad"),
    "empty": ("○", "dim"),
}


def state(run_state: State, *, lacks: bool = False, severity: Severity = "note") -> StyledText:
    """Return a state with its sign, and a mark if a run that goes on lacks a process.

    It has the color of what is to be read first, if that is wrong: no state is green above it.
    """
    sign, style = _STATES[run_state]
    if run_state == "live" and lacks:
        return StyledText(f"{sign} {run_state} !", "bad")
    return StyledText(f"{sign} {run_state}", severity if severity in ("bad", "warning") and style != "bad" else style)


def number(value: float | None) -> str:
    """Return a value of a curve; `None` is one that is not finite."""
    return "nan" if value is None or math.isnan(value) else wording.number(value)


def last_seen(since: int, at: int) -> str:
    """Return how long ago something was, in the largest unit alone; nothing if that is unknown."""
    if not since:
        return ""
    seconds = wording.whole(max(0, at - since) / _NS)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}"
    return f"{seconds} s"


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
    in_order = sorted(phases, key=lambda phase: order.get(phase.category, len(order)))
    return drawing.bar([(phase.seconds, phase.category) for phase in in_order], cells)


def shares(phases: Sequence[PhaseTime], short: Mapping[str, str], cells: int) -> str:
    """Return the shares of the longest phases in percent, by short names: `gen 61 upd 24`."""
    total = sum(span.seconds for span in phases)
    text = ""
    for span in phases:
        if not span.name or not span.seconds:
            continue
        more = f"{text} {short[span.name]} {wording.percent(span.seconds / total).removesuffix(' %')}".lstrip()
        if len(more) > cells:
            break
        text = more
    return text
