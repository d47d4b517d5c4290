"""Which waits can never end: their debtors are dead, have ended, or wait in turn for those who wait for them.

The waits are a graph of ANDs and ORs: a wait needs all of its debtors, or any one of them. A process pays while it
works, or as soon as one of its own waits can end. Whoever is not known can pay too. Time plays no part: a debtor that
is slow is never blamed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.export import WaitCause
    from otel_rl.recorder.archive.now import Wait

Condition = Literal["works", "waits", "ended", "dead"]
"""The state of a process or a server: `waits` if it does nothing but wait. An unknown one has none."""


class DebtVerdict(NamedTuple):
    """Why a wait can never end, and who that is due to: who is gone, or the processes of a circle in their order."""

    cause: WaitCause
    culprits: tuple[str, ...]


def judge(waits: Sequence[Wait], conditions: Mapping[str, Condition]) -> dict[int, DebtVerdict]:
    """Return the verdict of each wait that can never end, by its place."""
    owed: dict[str, list[int]] = defaultdict(list)
    for n, wait in enumerate(waits):
        for debtor in dict.fromkeys(wait.debtors):
            owed[debtor].append(n)
    stuck = {wait.waiter for wait in waits if conditions.get(wait.waiter) == "waits"}
    missing = [min(1, len(wait.debtors)) if wait.is_any else len(set(wait.debtors)) for wait in waits]
    gone = [name for cause in ("dead", "ended") for name in owed if conditions.get(name) == cause]
    free = [wait.waiter for wait, left in zip(waits, missing, strict=True) if not left and wait.waiter in stuck]
    able = deque(dict.fromkeys([*(name for name in owed if name not in stuck and name not in gone), *free]))
    stuck -= {*free}
    while able:
        for n in owed.get(able.popleft(), ()):
            missing[n] -= 1
            if missing[n] == 0 and waits[n].waiter in stuck:
                stuck.discard(waits[n].waiter)
                able.append(waits[n].waiter)
    verdicts = _due_to(gone, waits, owed, missing, stuck, conditions)
    return {**verdicts, **_circles(waits, missing, stuck, verdicts)}


def _due_to(
    gone: Sequence[str],
    waits: Sequence[Wait],
    owed: Mapping[str, Sequence[int]],
    missing: Sequence[int],
    stuck: set[str],
    conditions: Mapping[str, Condition],
) -> dict[int, DebtVerdict]:
    """Return the verdicts of the waits that are due to processes that are gone, the nearest one of each."""
    known = {name: DebtVerdict("dead" if conditions[name] == "dead" else "ended", (name,)) for name in gone}
    verdicts: dict[int, DebtVerdict] = {}
    left = deque(gone)
    while left:
        name = left.popleft()
        for n in owed.get(name, ()):
            if missing[n] > 0 and n not in verdicts:
                verdicts[n] = known[name]
                waiter = waits[n].waiter
                if waiter in stuck and waiter not in known:
                    known[waiter] = known[name]
                    left.append(waiter)
    return verdicts


def _circles(
    waits: Sequence[Wait], missing: Sequence[int], stuck: set[str], known: Mapping[int, DebtVerdict]
) -> dict[int, DebtVerdict]:
    """Return the verdicts of the other waits that can never end: each leads to a circle."""
    left = [n for n in range(len(waits)) if missing[n] > 0 and n not in known]
    nexts: dict[str, str] = {}
    for n in left:
        nexts.setdefault(waits[n].waiter, _debtor(waits[n], stuck))
    circles: dict[str, DebtVerdict] = {}
    verdicts: dict[int, DebtVerdict] = {}
    for n in left:
        way: dict[str, int] = {}
        name = _debtor(waits[n], stuck)
        while name not in circles and name not in way:
            way[name] = len(way)
            name = nexts[name]
        verdict = circles.get(name) or DebtVerdict("circle", _from_first([*way][way[name] :]))
        circles |= dict.fromkeys(way, verdict)
        verdicts[n] = verdict
    return verdicts


def _debtor(wait: Wait, stuck: set[str]) -> str:
    return next(name for name in wait.debtors if name in stuck)


def _from_first(circle: Sequence[str]) -> tuple[str, ...]:
    """Return a circle so that it begins with the first of its names."""
    first = circle.index(min(circle))
    return (*circle[first:], *circle[:first])
