"""Exporters in threads of their own, over the outbox of a run directory, as agents have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

from otel_rl.export import Exporter, Item, RunInfo
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.delivery.plugins import find_exporter
from tests.collector import wait_for


def project_of(place: Path) -> str:
    """Return a project of its own for each place: trackio keeps the first directory of a process for all runs."""
    return f"p{crc32(str(place).encode())}"


class Agents:
    """One exporter after the other on the same run directory.

    Attributes:
        place: The run directory.
    """

    thread: ExporterThread  # the exporter that was started last
    outbox: Outbox  # what it delivers

    def __init__(self, place: Path) -> None:
        self.place = place
        self.local = place / "local"
        self.info = RunInfo("i", project_of(place), "n", str(place))
        for name in ("outbox", "cursors"):
            (self.local / name).mkdir(parents=True)

    def start(self, exporter: Callable[..., Exporter] | str, items: Sequence[Item] = ()) -> ExporterThread:
        """Start an exporter, by name or by its factory, after the one before was stopped; put items into the outbox."""
        self.stop()
        self.outbox = Outbox(self.local / "outbox", 1 << 30)
        if items:
            self.outbox.append(items, b"\xc0")
        name, factory = (exporter, find_exporter(exporter)) if isinstance(exporter, str) else ("a", exporter)
        self.thread = ExporterThread(name, factory, {}, self.info, self.outbox, self.local / "cursors")
        self.thread.start()
        return self.thread

    def put(self, *items: Item) -> None:
        """Put items into the outbox, and wait until they are delivered."""
        if items:
            self.outbox.append(items, b"\xc0")
        wait_for(lambda: self.thread.delivered >= self.outbox.end, "not all is delivered", 200)

    def end(self) -> None:
        """End the exporter in order, with everything delivered."""
        self.thread.close_when_done()
        wait_for(lambda: not self.thread.is_alive(), "the exporter does not come to its end", 200)
        self.outbox.close()
        assert self.thread.delivered >= self.outbox.end

    def deliver(self, exporter: Callable[..., Exporter] | str, *items: Item) -> ExporterThread:
        """Deliver items to an exporter, as an agent does that lives as long as this takes."""
        thread = self.start(exporter, items)
        self.end()
        return thread

    def stop(self) -> None:
        """End the exporter where it is; it is not shut down, as if the agent had been killed."""
        if hasattr(self, "thread"):
            self.thread.stop()
            self.thread.join(15)
            self.outbox.close()
