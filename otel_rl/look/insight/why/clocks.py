"""Bounds on how far the clocks of machines differ: nothing is received before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from otel_rl.look.insight.why.step_spans import Integers, SpanProcess, StepWindow

MOST_NS = 100_000_000
"""The difference of clocks that is assumed where no messages bound it."""


class ClockMessage(NamedTuple):
    """Something that one clock sent and another one received; the time in between, by both, in nanoseconds."""

    sender: str
    receiver: str
    took: int


class ClockOffset(NamedTuple):
    """The nanoseconds to add to the times of a clock, and the bounds of them."""

    value: int
    low: int
    high: int


def offsets(messages: Iterable[ClockMessage], reference: str) -> dict[str, ClockOffset]:
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
    origin = place[reference]
    widest = [(-bounds[origin, n], bounds[n, origin]) for n in range(len(clocks))]
    offsets: dict[str, ClockOffset] = {}
    for clock, n in place.items():
        low, high = -bounds[origin, n], bounds[n, origin]
        value = min(max(0.0, low), high) if low <= high else (low + high) / 2  # else the clocks were set meanwhile
        bounds[n, origin], bounds[origin, n] = value, -value
        _relax(bounds, n)
        _relax(bounds, origin)
        offsets[clock] = ClockOffset(round(value), round(min(widest[n])), round(max(widest[n])))
    return offsets


def _relax(bounds: NDArray[np.float64], through: int) -> None:
    """Tighten the bounds between all clocks by the way through one."""
    np.minimum(bounds, bounds[:, through, None] + bounds[None, through], out=bounds)


def messages_of(window: StepWindow, clock_of: Mapping[SpanProcess, str]) -> Iterator[ClockMessage]:
    """Yield what processes with different clocks sent to each other in a window, the fastest of each pair."""
    spans, clocks = window.spans, [clock_of[who] for who in window.whos]
    names = sorted(set(clocks))
    number = np.array([names.index(clock) for clock in clocks], np.int64)
    requests = np.array([work.kind == "request" for work in window.works], bool)
    inner = np.flatnonzero(spans.parent >= 0)
    outer = spans.parent[inner]
    child, parent = number[spans.who[inner]], number[spans.who[outer]]
    sent = (parent, child, spans.began[inner] - spans.began[outer], child != parent)
    is_answer = (child != parent) & requests[spans.what[inner]]
    answered = (child, parent, spans.ended[outer] - spans.ended[inner], is_answer)
    for sender, receiver, took, known in (sent, answered):
        yield from _fastest(sender[known], receiver[known], took[known], names)
    ranks = {who.rank: clock for who, clock in clock_of.items() if who.is_trainer}
    for taken in window.taken:
        for n in taken.trajectories:
            clock, receiving = clocks[int(spans.who[n])], ranks.get(taken.rank)
            if receiving is not None and clock != receiving:
                yield ClockMessage(clock, receiving, taken.at - int(spans.ended[n]))


def _fastest(senders: Integers, receivers: Integers, took: Integers, names: Sequence[str]) -> Iterator[ClockMessage]:
    pairs, of_pair = np.unique(senders * len(names) + receivers, return_inverse=True)
    least = np.full(len(pairs), np.iinfo(np.int64).max)
    np.minimum.at(least, of_pair, took)
    for pair, nanoseconds in zip(pairs.tolist(), least.tolist(), strict=True):
        yield ClockMessage(names[pair // len(names)], names[pair % len(names)], nanoseconds)


def corrected(window: StepWindow, clock_of: Mapping[SpanProcess, str], added: Mapping[str, int]) -> StepWindow:
    """Return a window in which an offset is added to the times of each clock."""
    if not any(added.values()):
        return window
    shifts = np.array([added.get(clock_of[who], 0) for who in window.whos], np.int64)[window.spans.who]
    began, ended = window.spans.began + shifts, window.spans.ended + shifts
    return window._replace(spans=window.spans._replace(began=began, ended=ended))
