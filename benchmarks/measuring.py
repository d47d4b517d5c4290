"""Timing of contestants in turns: the machine is shared, so only what ran at the same time compares."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.tables import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SETTLE_S = 0.1


def _nothing() -> None:
    """Do nothing."""


class Contestant(NamedTuple):
    """A call to be timed.

    Attributes:
        name: What the table calls it.
        call: The call.
        settle: Waits, untimed, for what the calls left to its threads, so that the next one is not billed for it.
    """

    name: str
    call: Callable[[], object]
    settle: Callable[[], object] = _nothing


TIMER = Contestant("an empty call (the timer itself)", _nothing)


class Round(NamedTuple):
    """Nanoseconds per call, over the calls of one round."""

    p50: float
    p99: float
    worst: float


class Cost(NamedTuple):
    """Microseconds per call: medians over the rounds, and the worst of all calls."""

    p50: float
    p99: float
    worst: float


def percentile(ordered: Sequence[int], share: float) -> float:
    """Return the value below which `share` of the ascending values lie."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def summarize(took: Sequence[int]) -> Round:
    """Return what one round's durations come to."""
    ordered = sorted(took)
    return Round(percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1])


def time_calls(call: Callable[[], object], calls: int, pause_s: float) -> list[int]:
    """Return how many nanoseconds each call took, with a pause before each if one is asked for."""
    clock, took = time.perf_counter_ns, []
    for _ in range(calls):
        if pause_s:
            time.sleep(pause_s)
        began = clock()
        call()
        took.append(clock() - began)
    return took


def interleave(
    contestants: Sequence[Contestant], *, rounds: int, calls: int, pause_s: float = 0.0
) -> dict[str, list[Round]]:
    """Time every contestant in every round, in an order that rotates; one unrecorded round warms up."""
    found: dict[str, list[Round]] = {contestant.name: [] for contestant in contestants}
    for number in range(-1, rounds):
        for index in range(len(contestants)):
            contestant = contestants[(number + index) % len(contestants)]
            one = summarize(time_calls(contestant.call, calls, pause_s))
            if number >= 0:
                found[contestant.name].append(one)
            contestant.settle()
            time.sleep(_SETTLE_S)
    return found


def cost(rounds: Sequence[Round]) -> Cost:
    """Return what the rounds come to."""
    return Cost(
        statistics.median(one.p50 for one in rounds) / 1e3,
        statistics.median(one.p99 for one in rounds) / 1e3,
        max(one.worst for one in rounds) / 1e3,
    )


def ratio(rounds: Sequence[Round], reference: Sequence[Round]) -> float:
    """Return the median over rounds of the ratio of p50s; noise that lasts a round is in both and cancels."""
    return statistics.median(one.p50 / other.p50 for one, other in zip(rounds, reference, strict=True))


def compared(title: str, found: Mapping[str, Sequence[Round]], than: str, note: str, *, short: str = "") -> Table:
    """Return the table of calls: their costs, and the ratio to the call `than`, which a column calls `short`."""
    rows: list[list[Cell]] = [[name, *cost(one), ratio(one, found[than])] for name, one in found.items()]
    return Table(title, ["call", "p50 µs", "p99 µs", "worst µs", f"p50 ÷ {short or than}"], rows, note)
