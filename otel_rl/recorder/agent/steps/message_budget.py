"""Chooses the trajectories of a step whose messages are kept, if there are more than a budget of bytes.

Whole groups are kept, since an advantage is relative to its group. The first half of the budget is for the extremes:
in turns, the group of the lowest reward, of the highest one, of the longest trajectory, and of the largest mean gap
between the log-probabilities of the engine and the trainer. The other half is for any groups, by a hash of their
identity: so the rest is a fair sample, and the same one if it is chosen again. If no group fits, single trajectories
are chosen by the same rule.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Candidate(NamedTuple):
    """A trajectory that may be kept."""

    key: str  # its identity
    group: str  # the identity of its group, or its own
    size: int  # bytes of its messages
    reward: float  # its reward; NaN if unknown
    length: int  # number of its tokens, or of its characters
    gap: float  # mean absolute difference of its log-probabilities; NaN if unknown


def lot(group: str) -> int:
    """Return a number that is as good as random, but the same for the same group."""
    return crc32(group.encode())


def chosen(candidates: Sequence[Candidate], budget: int) -> set[str]:
    """Return the keys of those that are kept."""
    if sum(one.size for one in candidates) <= budget:
        return {one.key for one in candidates}
    groups: dict[str, list[Candidate]] = {}
    for one in candidates:
        groups.setdefault(one.group, []).append(one)
    kept = _filled(groups, budget)
    if not kept:
        kept = _filled({one.key: [one] for one in candidates}, budget)
    return {one.key for one in kept}


def _filled(groups: dict[str, list[Candidate]], budget: int) -> list[Candidate]:
    """Return the groups that fill the budget: half of it with extremes, then any."""
    sizes = {name: sum(one.size for one in group) for name, group in groups.items()}
    kept: dict[str, None] = {}

    def keep(names: Iterator[str], most: int) -> None:
        left = most - sum(map(sizes.__getitem__, kept))
        for name in names:
            if name not in kept and sizes[name] <= left:
                kept[name] = None
                left -= sizes[name]

    keep(_extremes(groups), budget // 2)
    keep(iter(sorted(groups, key=_order)), budget)
    return [one for name in kept for one in groups[name]]


def _extremes(groups: dict[str, list[Candidate]]) -> Iterator[str]:
    """Yield the names of the groups that have the most extreme trajectories, by each measure in turns."""
    measures: tuple[Callable[[Candidate], float], ...] = (
        lambda one: -one.reward,
        lambda one: one.reward,
        lambda one: one.length,
        lambda one: one.gap,
    )
    orders = []
    for measure in measures:
        most = {name: max(map(_known, map(measure, group))) for name, group in groups.items()}
        ranked = sorted((-value, *_order(name)) for name, value in most.items() if value > -math.inf)
        orders.append([name for *_, name in ranked])
    for place in range(len(groups)):
        for order in orders:
            yield from order[place : place + 1]


def _order(group: str) -> tuple[int, str]:
    return lot(group), group


def _known(value: float) -> float:
    return -math.inf if math.isnan(value) else value
