"""Items that a backend cannot take: none of them stops an exporter, and their neighbors arrive."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import ClassVar

import pytest

from otel_rl.export import Ended, Event, Item, Machine, Params, Row, RunInfo, Span, Table
from tests.delivering import Agents
from tests.exporters.every import EVERY_EXPORTER, needs_packages
from tests.trackers import CURVES

HUGE, SMALL = 2**64 - 1, -(2**63)
NAMES = [
    "",
    " ",
    "\0",
    "/",
    ".",
    "..",
    "a/",
    "//",
    "a\nb",
    "%",
    "$(x)",
    "n" * 5000,
    "é" * 300,
    "_",
    "step",
    "rl/attempt",
    "rl/part",
]
NUMBERS = [HUGE, SMALL, math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0]
TIMES = [0, -1, HUGE, SMALL, 1]


def hostile() -> list[Item]:
    """Items of every type, each with one hostile value of its fields."""
    now = 10**18
    rows = [
        *(Row(step, now + 1, {"a": 1.0}) for step in (HUGE, SMALL, -1, 2**63)),
        *(Row(1, time, {"a": 1.0}) for time in TIMES),
        *(Row(1, now + n, {name: 1.0}) for n, name in enumerate(NAMES)),
        *(Row(1, now + 100 + n, {"number": value}) for n, value in enumerate(NUMBERS)),
        Row(1, now, {}),
        Row(1, now, {"a": 1.0}, attempt=0, part=HUGE, missing_ranks=(HUGE, -1), partial=True),
    ]
    machine = [Machine(step, time, {name: HUGE}) for step, time, name in zip(NUMBERS[:2], TIMES, NAMES, strict=False)]
    tables = [
        *(Table(name, 1, now, ("x",), ((1,),)) for name in NAMES),
        *(Table("t", step, now, ("x",), ((1,),)) for step in (HUGE, SMALL)),
        Table("short", 1, now, ("x", "y"), ((1,), (1, 2, 3))),
        Table("twice", 1, now, ("x", "x"), ((1, 2),)),
        Table("none", 1, now, (), ()),
        Table("cells", 1, now, ("x",), tuple((cell,) for cell in (*NUMBERS, *NAMES, None, True))),
    ]
    params = [
        Params(time, {name: HUGE, "nan": math.nan, "text": "x" * 100_000})
        for time, name in zip(TIMES, NAMES, strict=False)
    ]
    others = [
        *(Event(name, time, {name: HUGE}, step=SMALL, rank=HUGE) for time, name in zip(TIMES, NAMES, strict=False)),
        Span("s", "zz", "not hex", "", HUGE, SMALL),
        Ended(now, HUGE, "crashed", "x" * 100_000, SMALL),
    ]
    return [*rows, *machine, *tables, *params, *others]


def with_neighbours() -> list[Item]:
    """The hostile items, each with a good row behind it."""
    items: list[Item] = []
    for n, item in enumerate(hostile()):
        items += [item, Row(1000 + n, 2 * 10**18 + n * 10**6, {"good": float(n)}, attempt=HUGE if n < 0 else 0)]
    return items


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_packages(name)) for name in CURVES])
def test_good_rows_arrive_between_hostile_items(agents: Agents, name: str) -> None:
    """Whatever is wrong with the items between them, every good row arrives, once."""
    agents.deliver(name, *with_neighbours())

    assert [value for _, value in CURVES[name](agents.place, "good")] == [float(n) for n in range(len(hostile()))]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_packages(name)) for name in sorted({*EVERY_EXPORTER} - {*CURVES})]
)
def test_hostile_items_do_not_stop(agents: Agents, name: str) -> None:
    """Every item is taken, or put aside."""
    exporter = agents.deliver(name, *with_neighbours())

    assert exporter.taken + exporter.refused == len(with_neighbours())


class Picky:
    """An exporter that takes batches, and cannot bear one item."""

    batch_size = 64
    built: ClassVar[int] = 0
    closed: ClassVar[int] = 0
    seen: ClassVar[list[int]] = []
    error: ClassVar[BaseException] = ValueError("no")

    def __init__(self, _: RunInfo) -> None:
        type(self).built += 1

    def export(self, items: Sequence[Item]) -> None:
        """Fail if item 41 is among them."""
        times = [item.time_unix_nano for item in items if isinstance(item, Params)]
        if 41 in times:
            raise self.error
        self.seen.extend(times)

    def shutdown(self) -> None:
        """Count."""
        type(self).closed += 1


@pytest.mark.parametrize(
    "error", [ValueError("no"), OverflowError("no"), KeyError("no"), UnicodeEncodeError("a", "b", 0, 1, "c")]
)
def test_one_of_a_batch_is_found_and_set_aside(agents: Agents, error: BaseException) -> None:
    """One of 100 items: it is in the quarantine with the reason, the others are exported in order, each once."""
    Picky.built, Picky.closed, Picky.seen, Picky.error = 0, 0, [], error
    exporter = agents.deliver(Picky, *(Params(n, {}) for n in range(100)))
    (line,) = (agents.local / "quarantine.jsonl").read_text().splitlines()
    entry = json.loads(line)

    assert Picky.seen == [n for n in range(100) if n != 41]
    assert (exporter.taken, exporter.refused) == (99, 1)
    assert (entry["source"], entry["kind"], entry["value"]["time_unix_nano"]) == ("a", "Params", 41)
    assert type(error).__name__ in entry["reason"]
    assert (Picky.built, Picky.closed) == (2, 2)  # tried with a new one, after the old one was shut down


@pytest.mark.slow
def test_an_exporter_that_is_replaced_is_shut_down(agents: Agents) -> None:
    """Five failures that are not the item's fault: the old one is closed before the new one is built."""
    Flaky.log = []
    agents.deliver(Flaky, *(Params(n, {}) for n in range(3)))

    assert Flaky.log == ["built", "closed", "built", "closed"]


class Flaky:
    """An exporter of which the first one is broken, and even says so when it is closed."""

    batch_size = 64
    log: ClassVar[list[str]] = []

    def __init__(self, _: RunInfo) -> None:
        self.log.append("built")
        self.broken = self.log == ["built"]

    def export(self, items: Sequence[Item]) -> None:
        """Fail, or not."""
        if self.broken:
            raise ConnectionError("gone")

    def shutdown(self) -> None:
        """Close."""
        self.log.append("closed")
        if self.broken:
            raise RuntimeError("never opened")
