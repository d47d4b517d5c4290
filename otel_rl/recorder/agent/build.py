"""Builds the parts of an agent, from the manifest of a run: each function needs the parts of those before it."""

from __future__ import annotations

import os
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from otel_rl.recorder.agent.autopsies import Autopsies
from otel_rl.recorder.agent.hardware.poller import Poller
from otel_rl.recorder.agent.input.deaths import Deaths
from otel_rl.recorder.agent.input.outputs import Outputs
from otel_rl.recorder.agent.input.source import Source
from otel_rl.recorder.agent.loop import Loop
from otel_rl.recorder.agent.losses import Losses
from otel_rl.recorder.agent.openings import Openings
from otel_rl.recorder.agent.output.display import Display
from otel_rl.recorder.agent.output.exporters import Exporters
from otel_rl.recorder.agent.output.measurements import Measurements
from otel_rl.recorder.agent.output.oom_reports import write_reports
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.recorder.agent.output.present import Present
from otel_rl.recorder.agent.output.targets import Target, remove, sweep
from otel_rl.recorder.agent.repair.refill import UNLIMITED_BYTES
from otel_rl.recorder.agent.repair.release import Release, cut_off
from otel_rl.recorder.agent.status import Status
from otel_rl.recorder.agent.steps.pipeline import Pipeline
from otel_rl.recorder.agent.steps.state import Checkpoint, State, read_checkpoint
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.directory import agent_events
from otel_rl.recorder.settings import otel_environment
from otel_rl.semconv.dialect import dialect_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import Exporter, Item
    from otel_rl.recorder.directory.directory import Manifest, RunDirectory


class AgentTask(NamedTuple):
    """The run that an agent works for, and how it works."""

    directory: RunDirectory
    manifest: Manifest
    once: bool  # it delivers what exists and ends
    of_archive: bool  # the part was made from the archive of another machine, which sees how far it is
    missing: int  # items that were lost before, with the archive and the part
    exporters: Mapping[str, Callable[..., Exporter]]  # factories that replace the registered ones, by name


class AgentParts(NamedTuple):
    """The parts of an agent."""

    stopped: threading.Event  # set when the agent must end
    openings: Openings
    outbox: Outbox
    exporters: Exporters
    quarantine: Quarantine
    losses: Losses
    source: Source
    pipeline: Pipeline
    poller: Poller
    loop: Loop
    display: Display
    status: Status
    present: Present
    release: Release
    takers: Mapping[str, Callable[[list[Item]], None]]  # what takes the items of each turn, by the file it writes
    target: Target
    closers: list[Callable[[], None]]  # ends what listens, sends, measures and shows, in this order


def build(task: AgentTask) -> AgentParts:
    """Build all parts.

    Raises:
        OSError: A port or a file cannot be had, and the run is strict; or the directory cannot be written.
        SettingsError: An option of a reader is invalid.
        ImportError: An exporter cannot be imported.
    """
    directory, manifest, *_ = task
    stopped, openings = threading.Event(), Openings(strict=manifest.agent.strict)
    # An outbox that is made of an archive holds all of a run: with a limit it would drop what it was made for
    # (recorder/agent/test_refill.py).
    outbox = Outbox(directory.outbox, UNLIMITED_BYTES if task.of_archive else manifest.journal_limit)
    exporters = Exporters(directory, manifest, outbox, openings, task.exporters, once=task.once)
    target = _target(task, exporters)
    quarantine = Quarantine(directory.quarantine)
    saved = _checkpoint(outbox, quarantine)
    losses = Losses(saved.lost)
    source = Source(directory, manifest, saved.positions, openings, once=task.once, of_archive=task.of_archive)
    removed = cut_off(directory.journals, saved.positions) + task.missing
    everything = any(one.everything for one in exporters.threads)
    pipeline = Pipeline(manifest, saved, quarantine, everything=everything)
    instruments, poller, measurements = _measuring(task, exporters, pipeline, source)
    present = Present(directory, manifest, pipeline, measurements.gauges, of_archive=task.of_archive)
    outputs = _outputs(task, saved)
    return AgentParts(
        *(stopped, openings, outbox, exporters, quarantine, losses, source, pipeline, poller),
        loop=_loop(task, source, pipeline, measurements, outbox, losses, quarantine, outputs, stopped),
        display=Display(instruments, pipeline, directory, quarantine, sends=manifest.sends),
        status=Status(directory, source, pipeline, exporters, openings, losses, quarantine, removed),
        present=present,
        release=Release(outbox, directory.cursors, directory.journals),
        takers={
            "now.json": present.add,
            "events.json": agent_events.EventFile(directory.events).add,
            "oom": partial(write_reports, directory.path),
        },
        target=target,
        closers=[
            # Listeners first: a sender that gets no answer keeps its records, and sends them to the next agent.
            source.stop_listening,
            outputs.close,
            exporters.close,
            poller.stop,
            partial(instruments.shutdown, timeout_s=5),
            *(reader.shutdown for reader in exporters.readers.values()),
            target.close,
        ],
    )


def _measuring(
    task: AgentTask, exporters: Exporters, pipeline: Pipeline, source: Source
) -> tuple[OtelMetrics, Poller, Measurements]:
    """Return the instruments, what measures, and what passes measurements on; analyses may read the last ones."""
    manifest, hardware = task.manifest, task.manifest.agent.hardware
    readers = [reader.reader for reader in exporters.readers.values()]
    instruments = OtelMetrics(manifest.run(task.directory), readers, pipeline.vocabulary)
    poller = Poller(hardware.interval, io=hardware.pcie)
    section, analyses = dialect_file(manifest.dialect).hardware, pipeline.analyses
    measurements = Measurements(poller, instruments, analyses, hardware.flush_interval, section, sends=manifest.sends)
    analyses.basis.heard, analyses.basis.utilization = source.last_heard, measurements.gauges.utilization
    return instruments, poller, measurements


def _loop(
    task: AgentTask,
    source: Source,
    pipeline: Pipeline,
    measurements: Measurements,
    outbox: Outbox,
    losses: Losses,
    quarantine: Quarantine,
    outputs: Outputs,
    stopped: threading.Event,
) -> Loop:
    only_delivers, manifest = task.once or task.of_archive, task.manifest
    return Loop(
        *(source, pipeline, measurements, outbox, losses, quarantine),
        Deaths(os.environ, stopped.is_set),
        outputs,
        Autopsies(task.directory.path, is_on=manifest.agent.autopsy and not only_delivers),
        sends=manifest.sends,
        watches=not (only_delivers or manifest.sends),
    )


def _outputs(task: AgentTask, saved: Checkpoint) -> Outputs:
    """Return what follows the files that processes print into; none if this agent prints into them itself."""
    manifest = task.manifest
    prints = any(name in ("console", "stdout") for name, _ in manifest.exporters) or otel_environment.prints(os.environ)
    settings = replace(manifest.agent.output, enabled=manifest.agent.output.enabled and not prints)
    return Outputs(settings, saved.outputs, in_slurm="SLURM_JOB_ID" in os.environ)


def _checkpoint(outbox: Outbox, quarantine: Quarantine) -> Checkpoint:
    """Return the checkpoint of the agent before this one; an empty one if there was none, or it is damaged."""
    saved = outbox.checkpoint
    with quarantine.guard("reading of the checkpoint", str(outbox.path), saved):
        if saved:
            return read_checkpoint(saved)
    return Checkpoint({}, State())


def _target(task: AgentTask, exporters: Exporters) -> Target:
    """Return the file by which Prometheus finds this agent; with `once`, only remove that of a killed agent."""
    path, manifest = task.directory.targets(socket.gethostname()), task.manifest
    engines, own, needs_token = manifest.agent.hardware.engines, exporters.address, exporters.needs_token
    target = Target(path, manifest.id, own, engines, needs_token=needs_token, sweeps=not manifest.sends)
    if task.once:
        remove(path)
        sweep(path.parent, now=time.time())
    else:
        target.start()
    return target
