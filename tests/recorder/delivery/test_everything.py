"""Spans that trace sampling left out, and memory around phases: for exporters with `everything` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from otel_rl.export import Item, NotNow, Params, Row, RunInfo, Span, Trajectory
from otel_rl.recorder.agent.steps.boundaries import without_phase_memory
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.journal.segments import START
from tests.collector import wait_for


def left_out(n: int) -> Span:
    return Span("llm_request", f"{n + 1:032x}", f"{n + 1:016x}", "", n, n + 1, sampled=False)


class Sampled:
    """An exporter of what is sampled."""

    batch_size = 4
    given: ClassVar[list[list[Item]]] = []
    fails: ClassVar[bool] = False

    def __init__(self, run: RunInfo) -> None: ...

    def export(self, items: Sequence[Item]) -> None:
        """Keep the items."""
        if type(self).fails:
            type(self).fails = False
            raise NotNow("busy")
        self.given.append([*items])

    def shutdown(self) -> None: ...


class Everything(Sampled):
    """An exporter of everything."""

    everything = True
    given: ClassVar[list[list[Item]]] = []


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    """An empty outbox."""
    for place in ("outbox", "cursors"):
        (tmp_path / place).mkdir()
    Sampled.given, Everything.given, Sampled.fails = [], [], False
    outbox = Outbox(tmp_path / "outbox", 1 << 20)
    yield outbox
    outbox.close()


def delivered(outbox: Outbox, kind: type[Sampled]) -> ExporterThread:
    """Deliver everything to a new exporter with the cursor of the one before it."""
    cursors = outbox.path.parent / "cursors"
    thread = ExporterThread(kind.__name__, kind, {}, RunInfo("i", "p", "n", "."), outbox, cursors, without_phase_memory)
    thread.start()
    wait_for(lambda: thread.has_everything, f"not delivered: {thread.last_error}")
    thread.close_when_done()
    thread.join(10)
    return thread


def test_they_go_to_those_that_want_them(outbox: Outbox) -> None:
    """For others they neither count nor take room in a batch, also when the exporter fails in between."""
    items: list[Item] = [item for n in range(8) for item in (left_out(2 * n), Params(n, {}), left_out(2 * n + 1))]
    for first in range(0, len(items), 6):
        outbox.append(items[first : first + 6], b"\xc0")
    Sampled.fails = True
    some, everything = delivered(outbox, Sampled), delivered(outbox, Everything)

    assert Sampled.given == [items[1:12:3], items[13::3]]
    assert [item for batch in Everything.given for item in batch] == items
    assert (some.taken, some.refused, everything.taken) == (8, 0, 24)


def test_so_do_trajectories_whose_trace_was_left_out(outbox: Outbox) -> None:
    """Their rewards would be evaluations of spans that a receiver does not have."""
    left_out = Trajectory(0, 0, 0, 0, "trained", 0, "a" * 32, "b" * 16, sampled=False)
    outbox.append([left_out, Params(0, {})], b"\xc0")
    delivered(outbox, Sampled)
    delivered(outbox, Everything)

    assert Sampled.given == [[Params(0, {})]]
    assert [type(item) for item in Everything.given[0]] == [Trajectory, Params]


def test_the_cursor_passes_them(outbox: Outbox) -> None:
    """Nothing else is delivered, and nothing before it is needed any more."""
    outbox.append([left_out(0)], b"\xc0")
    first = delivered(outbox, Sampled)
    outbox.append([Params(0, {}), left_out(1)], b"\xc0")
    delivered(outbox, Sampled)
    delivered(outbox, Sampled)

    assert START < first.delivered < outbox.end
    assert Sampled.given == [[Params(0, {})]]


def test_rows_are_usual_ones_for_those_that_do_not_want_everything(outbox: Outbox) -> None:
    """Memory around phases, which otel-rl measured, is left out; what the trainer logged under such a name is not."""
    names = ("loss", "memory/own/x", "memory/device/0/headroom", "memory/cpu/generate/start/rss", "memory/generate/a/b")
    row = Row(0, 1, dict.fromkeys(names, 1.0), measured=names[2:])
    outbox.append([row], b"\xc0")
    delivered(outbox, Sampled)
    delivered(outbox, Everything)

    assert Everything.given == [[row]]
    assert Sampled.given == [[Row(0, 1, dict.fromkeys(names[:3], 1.0), measured=names[2:3])]]
