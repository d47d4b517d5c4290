"""Which waits can never end, in graphs of waits that are known to be right, and in random ones against an oracle."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from otel_rl.analyses.waits.debts import Condition, DebtVerdict, judge
from otel_rl.recorder.archive.now import Wait

GRAPHS = 1000


def wait(waiter: str, *debtors: str, is_any: bool = False) -> Wait:
    return Wait(waiter=waiter, kind="ticket", subject="x", debtors=debtors, is_any=is_any, since_unix_nano=0)


def can_pay(
    name: str, waits: Sequence[Wait], conditions: Mapping[str, Condition], path: frozenset[str] = frozenset()
) -> bool:
    """Return whether there is a way in which a process comes to pay: a proof that goes in no circle."""
    condition = conditions.get(name)
    if condition in ("dead", "ended") or name in path:
        return False
    own = [one for one in waits if one.waiter == name]
    if condition != "waits" or not own:
        return True
    return any(can_end(one, waits, conditions, path | {name}) for one in own)


def can_end(
    one: Wait, waits: Sequence[Wait], conditions: Mapping[str, Condition], path: frozenset[str] = frozenset()
) -> bool:
    """Return whether a wait can end."""
    paid = [can_pay(name, waits, conditions, path) for name in one.debtors]
    return not paid or (any(paid) if one.is_any else all(paid))


def graph(seed: int) -> tuple[list[Wait], dict[str, Condition]]:
    """Return a random graph of at most 8 processes: some dead, ended or slow, some in a circle, and a stranger."""
    chance = random.Random(seed)
    names = [f"p{n}" for n in range(chance.randint(2, 8))]
    states: list[Condition] = ["waits"] * 6 + ["works", "dead", "ended"]
    conditions = {name: chance.choice(states) for name in names}
    known = [*names, *(["stranger"] if chance.random() < 0.2 else [])]
    waits = [
        wait(name, *chance.sample(known, chance.randint(0 if chance.random() < 0.1 else 1, 2)), is_any=coin)
        for name in names
        if conditions[name] in ("waits", "works")
        for coin in chance.choices((True, False), k=chance.choice((1, 1, 2)))
    ]
    if chance.random() < 0.5:  # a circle of all of some
        circle = chance.sample(names, chance.randint(2, len(names)))
        conditions |= dict.fromkeys(circle, "waits")
        waits = [one for one in waits if one.waiter not in circle]
        waits += [wait(one, after) for one, after in zip(circle, [*circle[1:], circle[0]], strict=True)]
    return waits, conditions


@pytest.mark.parametrize("seed", range(0, GRAPHS, 100))
def test_random_graphs(seed: int) -> None:
    """Every wait that can never end has a verdict, no other one has, and its reason is true."""
    for number in range(seed, seed + 100):
        waits, conditions = graph(number)
        found = judge(waits, conditions)

        assert {*found} == {n for n, one in enumerate(waits) if not can_end(one, waits, conditions)}, number
        for n, verdict in found.items():
            assert is_true(verdict, waits[n], waits, conditions), (number, waits[n], verdict)


def is_true(verdict: DebtVerdict, one: Wait, waits: Sequence[Wait], conditions: Mapping[str, Condition]) -> bool:
    """Return whether a wait leads to who is to blame, along debts that nobody can pay."""
    reached, left = set[str](), [*one.debtors]
    while left:
        name = left.pop()
        if name not in reached and not can_pay(name, waits, conditions):
            reached.add(name)
            left += [debtor for each in waits if each.waiter == name for debtor in each.debtors]
    if verdict.cause != "circle":
        return {*verdict.culprits} <= reached and conditions[verdict.culprits[0]] == verdict.cause
    pairs = zip(verdict.culprits, (*verdict.culprits[1:], verdict.culprits[0]), strict=True)
    owes = all(any(each.waiter == a and b in each.debtors for each in waits) for a, b in pairs)
    return owes and {*verdict.culprits} <= reached


def test_a_queue_that_one_producer_can_fill() -> None:
    """It is certain only when the last of them is dead or waits for the trainer."""
    waits = [wait("rank 0", "rollout 0", "rollout 1", is_any=True), wait("rollout 1", "rank 0")]

    assert not judge(waits, {"rank 0": "waits", "rollout 0": "works", "rollout 1": "waits"})
    assert judge(waits, {"rank 0": "waits", "rollout 0": "dead", "rollout 1": "waits"})[0].cause == "dead"


def test_one_of_several_threads() -> None:
    """A process pays as long as one of its waits can end: its other threads are independent."""
    waits = [wait("rollout 0", "engine"), wait("rollout 0", "tool"), wait("rank 0", "rollout 0")]
    found = judge(waits, {"rollout 0": "waits", "rank 0": "waits", "engine": "dead"})

    assert found == {0: DebtVerdict("dead", ("engine",))}


def test_a_chain_names_its_end() -> None:
    """The verdict of a wait for a process that waits for a dead server names the server."""
    waits = [wait("rank 1", "rank 0"), wait("rank 0", "rollout 0", is_any=True), wait("rollout 0", "engine")]
    found = judge(waits, {"rank 0": "waits", "rank 1": "waits", "rollout 0": "waits", "engine": "dead"})

    assert found == dict.fromkeys(range(3), DebtVerdict("dead", ("engine",)))


def test_a_large_run() -> None:
    """4,096 ranks in a line, the last of which waits for the first, are one circle."""
    names = [f"r{n:04}" for n in range(4096)]
    waits = [wait(one, after) for one, after in zip(names, [*names[1:], names[0]], strict=True)]
    found = judge(waits, dict.fromkeys(names, "waits"))

    assert {*found.values()} == {DebtVerdict("circle", tuple(names))}
