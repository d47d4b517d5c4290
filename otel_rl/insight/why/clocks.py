"""Bounds on how far the clocks of machines differ: nothing is received before it is sent."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from otel_rl.insight.why.window import Who, Window

MOST_NS = 100_000_000
"""The difference of clocks that is assumed where no messages bound it."""


class Message(NamedTuple):
    """Something that one clock sent and another one received; the time in between, by both, in nanoseconds."""

    sender: str
    receiver: str
    took: int


class Offset(NamedTuple):
    """What is to be added to the times of a clock, in nanoseconds, and the bounds of it."""

    value: int
    low: int
    high: int


def offsets(messages: Iterable[Message], reference: str) -> dict[str, Offset]:
    """Return the offset of each clock from that of a reference, by difference constraints.

    The offsets `o` of two clocks satisfy `sent + o(sender) <= received + o(receiver)` for each message. Shortest paths
    over these constraints are the bounds. Clock after clock gets the offset that is nearest to zero within its bounds,
    and those of the others follow.
    """
    least: dict[tuple[str, str], int] = {}
    for sender, receiver, took in messages:
        least[sender, receiver] = min(took, least.get((sender, receiver), took))
    clocks = sorted({clock for pair in least for clock in pair} | {reference})
    place = {clock: n for n, clock in enumerate(clocks)}
    bounds = np.full((len(clocks), len(clocks)), 2.0 * MOST_NS)
    for (sender, receiver), took in least.items():
        bounds[place[sender], place[receiver]] = took
    np.fill_diagonal(bounds, 0.0)
    for through in range(len(clocks)):
        _relax(bounds, through)
    here = place[reference]
    widest = [(-bounds[here, n], bounds[n, here]) for n in range(len(clocks))]
    found: dict[str, Offset] = {}
    for clock, n in place.items():
        low, high = -bounds[here, n], bounds[n, here]
        value = min(max(0.0, low), high) if low <= high else (low + high) / 2  # else the clocks were set meanwhile
        bounds[n, here], bounds[here, n] = value, -value
        _relax(bounds, n)
        _relax(bounds, here)
        found[clock] = Offset(round(value), round(min(widest[n])), round(max(widest[n])))
    return found


def _relax(bounds: NDArray[np.float64], through: int) -> None:
    """Tighten the bounds between all clocks by the way through one."""
    np.minimum(bounds, bounds[:, through, None] + bounds[None, through], out=bounds)


def messages_of(window: Window, clock_of: Mapping[Who, str]) -> Iterator[Message]:
    """Yield what processes with different clocks sent to each other in a window."""
    for one in window.doings:
        if one.parent < 0:
            continue
        outer = window.doings[one.parent]
        here, there = clock_of[one.who], clock_of[outer.who]
        if here != there:
            yield Message(there, here, one.began - outer.began)
            if one.work.kind == "request":
                yield Message(here, there, outer.ended - one.ended)
    ranks = {who.rank: clock for who, clock in clock_of.items() if who.is_trainer}
    for taken in window.taken:
        for n in taken.trajectories:
            sender, receiver = clock_of[window.doings[n].who], ranks.get(taken.rank)
            if receiver is not None and sender != receiver:
                yield Message(sender, receiver, taken.at - window.doings[n].ended)


def corrected(window: Window, clock_of: Mapping[Who, str], added: Mapping[str, int]) -> Window:
    """Return a window in which an offset is added to the times of each clock."""
    if not any(added.values()):
        return window
    of_who = defaultdict(int, {who: added.get(clock, 0) for who, clock in clock_of.items()})
    doings = [
        one._replace(began=one.began + of_who[one.who], ended=one.ended + of_who[one.who]) for one in window.doings
    ]
    return window._replace(doings=doings)
