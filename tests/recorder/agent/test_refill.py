"""An outbox made from the archive: each exporter gets what it lacks, and items that come later, once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.export import Item, Params, RunInfo, identity
from otel_rl.recorder.agent.repair.refill import refill
from otel_rl.recorder.archive.writer import ArchiveWriter, time_of
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.directory.parts import ARCHIVE
from tests.collector import wait_for
from tests.recorder.archive.items import any_items, exactly

NO_LIMIT = 1 << 60
NEXT = Params(1 << 61, {"lr": 2e-6})


class Collected:
    """An exporter that keeps its items."""

    batch_size = 4
    everything = True
    items: ClassVar[list[Item]] = []

    def __init__(self, run: RunInfo) -> None: ...

    def export(self, items: Sequence[Item]) -> None:
        """Keep the items."""
        self.items += items

    def shutdown(self) -> None:
        """Do nothing."""


def counts(items: Iterable[Item]) -> dict[str, int]:
    return dict(Counter(type(item).__name__ for item in items))


def by_kind(items: Iterable[Item]) -> dict[str, list[object]]:
    """Return items by their kind, in the order in which they came."""
    found: dict[str, list[object]] = {}
    for item in items:
        found.setdefault(type(item).__name__, []).append(exactly(item))
    return found


def delivered(part: Path, name: str, new: Sequence[Item]) -> tuple[list[Item], dict[str, int]]:
    """Deliver the outbox of a part, and new items behind it; return what the exporter got, and its counts."""
    outbox = Outbox(part / "outbox", NO_LIMIT)
    Collected.items.clear()
    thread = ExporterThread(name, Collected, {}, RunInfo("i", "p", "n", str(part)), outbox, part / "cursors")
    thread.start()
    outbox.append(new, b"\xc0")
    thread.close_when_done()
    wait_for(lambda: not thread.is_alive(), "the exporter does not come to its end")
    outbox.close()
    return [*Collected.items], thread.passed


@settings(max_examples=12, deadline=None)
@given(st.lists(any_items(), max_size=24, unique_by=identity), st.data())
def test_each_exporter_gets_what_it_lacks(
    tmp_path_factory: pytest.TempPathFactory, items: list[Item], data: st.DataObject
) -> None:
    """Whatever each has, and in whatever files: all that it lacks, those of a kind in order, and then what is new."""
    items.sort(key=time_of)
    place = tmp_path_factory.mktemp("run")
    writer = ArchiveWriter(place / ARCHIVE / "node1", NO_LIMIT)
    for item in items:
        writer.add(item)
        if data.draw(st.booleans()):
            writer.save(seals=data.draw(st.booleans()))
    writer.save()
    has = {name: data.draw(st.integers(0, len(items))) for name in ("a", "b", "c")}
    of_exporters = {name: counts(items[:number]) for name, number in has.items()}
    missing = refill(place, "node1", place / "part", {**of_exporters, "archive": counts(items)})

    assert missing == 0
    for later, (name, number) in enumerate(has.items()):
        got, passed = delivered(place / "part", name, [NEXT])
        new = [NEXT] * (later + 1)  # and those that were put there for the exporters before
        assert by_kind(got) == by_kind([*items[number:], *new])
        assert passed == counts([*items, *new])


def test_a_refill_that_was_killed(tmp_path: Path) -> None:
    """It begins again: nothing is there twice, and nothing is missing."""
    items = [Params(n, {"lr": float(n)}) for n in range(200)]
    writer = ArchiveWriter(tmp_path / ARCHIVE / "node1", NO_LIMIT)
    for item in items:
        writer.add(item)
    writer.save()
    part = tmp_path / "part"
    script = """
import os, sys
from pathlib import Path
from otel_rl.recorder.agent.repair import refill
from otel_rl.recorder.delivery.outbox import Outbox
class Killed(Outbox):
    def append(self, items, checkpoint):
        super().append(items, checkpoint)
        os.kill(os.getpid(), 9)
refill.Outbox = Killed
refill.refill(Path(sys.argv[1]), "node1", Path(sys.argv[1], "part"), {"a": {}, "archive": {"Params": 200}})
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=100)
    was_begun = len(list((part / "outbox").glob("*.seg")))
    refill(tmp_path, "node1", part, {"a": {}, "archive": {"Params": 200}})

    assert was_begun
    assert by_kind(delivered(part, "a", [])[0]) == by_kind(items)
