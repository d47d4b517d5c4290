"""Builds the parts of an agent from the manifest of a run, and connects them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from otel_rl.agent.hardware.engines import Engine
from otel_rl.agent.hardware.poller import Poller
from otel_rl.agent.input.follow import Follower
from otel_rl.agent.input.remote import give_up_missing
from otel_rl.agent.losses import Losses
from otel_rl.agent.output.display import Display
from otel_rl.agent.output.measurements import Measurements
from otel_rl.agent.output.otel_metrics import OtelMetrics
from otel_rl.agent.output.targets import Target, sweep
from otel_rl.agent.repair.release import Release, cut_off, vanished
from otel_rl.agent.repair.rescue import Rescue
from otel_rl.agent.steps.pipeline import Pipeline
from otel_rl.agent.steps.state import Checkpoint, State
from otel_rl.delivery import plugins
from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox
from otel_rl.delivery.outbox_reader import count_before
from otel_rl.delivery.quarantine import Quarantine
from otel_rl.errors import UNDECODABLE, SettingsError
from otel_rl.errors.sinks import log_of
from otel_rl.export import READER_ENTRY_POINT_GROUP
from otel_rl.journal.claim import noted
from otel_rl.journal.own_files import read_own
from otel_rl.journal.segments import START
from otel_rl.setup import tokens
from otel_rl.setup.directory import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from otel_rl.agent.input.receiver import Receiver
    from otel_rl.export import Exporter, RunInfo
    from otel_rl.journal.segments import Position
    from otel_rl.setup.directory import RunDirectory

Made = TypeVar("Made")
logger = log_of(__name__)


class Wiring:
    """The parts of one agent, built from the manifest and connected to each other; nothing runs yet but `target`.

    Args:
        once: If true, the agent delivers what exists and ends.
        of_copy: If true, the part was made from a copy of the backlog of another machine.
        exporters: Factories that replace the registered ones, by name.

    Attributes:
        stopped: Set when the agent must end.
        warnings: Settings that this machine does not allow, and what the agent does instead.
        unreachable: Why other machines cannot send records to this agent; empty if they can.
        never_came: How many records of other machines a Collector lost before this agent started.
        cut_off: How many items and journals were removed although this agent needs them.

    Raises:
        OSError: A port or a file cannot be had, and the run is strict; or the directory cannot be written.
        SettingsError: An option of a reader is invalid.
        ImportError: An exporter cannot be imported.
    """

    def __init__(
        self,
        directory: RunDirectory,
        manifest: Manifest,
        *,
        once: bool,
        of_copy: bool,
        exporters: Mapping[str, Callable[..., Exporter]],
    ) -> None:
        self.directory, self.manifest, self.once, self.of_copy = directory, manifest, once, of_copy
        self.stopped = threading.Event()
        self.warnings: list[str] = []
        how, run = manifest.agent, manifest.run(directory)
        self.readers = self._open_readers(run)
        self.target = self._open_target()
        self.outbox = Outbox(directory.outbox, manifest.journal_limit)
        self.release = Release(self.outbox, directory.cursors, directory.journals)
        self.quarantine = Quarantine(directory.quarantine)
        saved = self._checkpoint()
        self.losses = Losses(saved.lost)
        expected = dict.fromkeys(noted(directory.attempts).get(directory.host, ()) if once else (), START)
        self.follower = Follower(directory.journals, expected | saved.positions, final=manifest.sends)
        self.cut_off = cut_off(directory.journals, saved.positions) + vanished(directory, self.outbox)
        self.pipeline = Pipeline(manifest, saved.state, self.quarantine)
        self.receiver: Receiver | None = None
        self.never_came, self.unreachable = 0, ""
        if manifest.receives and once:
            self.never_came = give_up_missing(directory.journals, manifest.journal_limit)
        elif manifest.receives:
            self.receiver = self._allowed(self._open_receiver)
            self.unreachable = self.warnings[-1] if self.receiver is None else ""
        if saved.held_since is not None:
            for place, batch in self.outbox.since(saved.held_since):
                self.pipeline.traces.rollouts.restore(batch.held, batch.settled.items(), place, time.time_ns())
        vocabulary = self.pipeline.vocabulary
        self.instruments = OtelMetrics(run, [reader.reader for reader in self.readers.values()], vocabulary)
        self.poller = Poller(how.hardware.interval, io=how.hardware.pcie)
        forensics = self.pipeline.reducer.forensics
        self.measurements = Measurements(
            self.poller, self.instruments, forensics, vocabulary, how.hardware.flush_interval
        )
        self.display = Display(self.instruments, self.pipeline, directory, self.quarantine, sends=manifest.sends)
        self.exporters = [
            ExporterThread(
                name, exporters.get(name) or plugins.find_exporter(name), options, run, self.outbox, directory.cursors
            )
            for name, options in manifest.exporters
        ]
        self.rescue = Rescue(directory, self.outbox, self.needed, self.waiting, of_copy=of_copy)

    @property
    def address(self) -> str | None:
        """The address of the metrics endpoint; `None` if there is none."""
        return next((reader.address for reader in self.readers.values() if reader.address), None)

    @property
    def delivering(self) -> dict[str, Any]:
        """All exporters, and the metric readers that push, by name."""
        pushing = {f"{name}_metrics": one for name, one in self.readers.items() if hasattr(one, "causes")}
        return {one.label: one for one in self.exporters} | pushing

    @property
    def has_delivered(self) -> bool:
        """Whether each exporter has everything that is in the outbox."""
        return all(exporter.has_everything for exporter in self.exporters)

    @property
    def is_over(self) -> bool:
        """Whether every process of the run has finished, and no process of this machine lives."""
        return self.pipeline.reducer.is_finished and not self.follower.alive

    def engines(self) -> Iterator[Engine]:
        """Yield the inference servers, for the agent that makes the rows; `target` warns of invalid URLs."""
        for url in () if self.manifest.sends else self.manifest.agent.hardware.engines:
            with contextlib.suppress(ValueError):
                yield Engine(url, self.pipeline.reducer.engines.hear)

    def needed(self) -> Position:
        """Return the place in the outbox before which neither the agent nor an exporter needs anything."""
        return self.release.needed([one.cursor for one in self.exporters], self.pipeline.traces.rollouts.since)

    def waiting(self) -> dict[str, int]:
        """Return how many items each exporter has not got, by name; an exporter with everything is left out."""
        path, count = self.outbox.path, self.outbox.count
        left = {d.label: count - count_before(path, d.delivered) for d in self.exporters if not d.has_everything}
        return {name: items for name, items in left.items() if items}

    def _checkpoint(self) -> Checkpoint:
        """Return the checkpoint of the agent before this one; an empty one if there was none, or it is damaged."""
        saved = self.outbox.checkpoint
        with self.quarantine.guard("reading of the checkpoint", str(self.outbox.path), saved):
            if saved:
                return msgspec.msgpack.decode(saved, type=Checkpoint)
        return Checkpoint({}, State())

    def _open_receiver(self) -> Receiver:
        from otel_rl.agent.input.receiver import Receiver  # the HTTP server, which few agents need
        from otel_rl.otlp.bridge.others import to_collector

        manifest = self.manifest
        used = {"METRICS": "otlp" in dict(manifest.readers), "LOGS": "otlp_logs" in dict(manifest.exporters)}
        ways = to_collector([signal for signal, is_used in used.items() if is_used], own=[manifest.receives])
        return Receiver(
            manifest.receives,
            manifest.id,
            self.directory.journals,
            self.directory.outbox,
            manifest.journal_limit,
            tokens.find(),
            ways,
            insecure=manifest.agent.insecure,
        )

    def _open_readers(self, run: RunInfo) -> dict[str, Any]:
        readers = {}
        for name, options in self.manifest.readers:
            if self.once and name == "prometheus":
                continue
            make = partial(plugins.find(READER_ENTRY_POINT_GROUP, name), run)
            reader = self._allowed(partial(make, **options))
            if reader is None and name == "prometheus":
                for other in (options | {"port": 0}, {"port": 0}):
                    with contextlib.suppress(OSError):
                        reader = make(**other)
                        self.warnings[-1] += f"; metrics are at {reader.address} instead"
                        break
            if reader is not None:
                readers[name] = reader
        return readers

    def _open_target(self) -> Target:
        """Return the file by which Prometheus finds this agent; with `once`, only remove that of a killed agent."""
        path, manifest = self.directory.targets(socket.gethostname()), self.manifest
        target = Target(path, manifest.id, self.address, manifest.agent.hardware.engines, sweeps=not manifest.sends)
        if self.once:
            with contextlib.suppress(OSError):
                path.unlink()
            sweep(path.parent, now=time.time())
        else:
            target.start()
        return target

    def _allowed(self, make: Callable[[], Made]) -> Made | None:
        """Return what needs a port or a file of the machine; where the machine refuses, warn and return `None`.

        Raises:
            OSError: The machine refuses, and the run is strict.
            SettingsError: An option is invalid.
        """
        try:
            return make()
        except OSError as error:
            if self.manifest.agent.strict:
                raise
            if (warning := str(error)) not in self.warnings:
                logger.warning("%s", warning)
                self.warnings.append(warning)
            return None
        except (ValueError, TypeError) as error:
            raise SettingsError(str(error)) from error


def read_manifest(directory: RunDirectory) -> Manifest:
    """Return the settings of a run.

    Raises:
        FileNotFoundError: It is not a run directory.
        ForeignError: Another user made the manifest, or can write it: it names code that the agent imports.
        ValueError: The manifest is damaged.
    """
    place = directory.own_manifest if directory.own_manifest.exists() else directory.manifest
    try:
        return msgspec.json.decode(read_own(place), type=Manifest)
    except UNDECODABLE as error:
        raise ValueError(f"{place} is damaged ({error}); start the run again, or restore the file") from error
