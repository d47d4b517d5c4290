"""How many series a run has in Prometheus, counted on pages, run with `python -m benchmarks cardinality`."""

from __future__ import annotations

import os
import time
import urllib.request

from benchmarks.scale_cost import PHASES, records
from benchmarks.tables import Cell, Table
from otel_rl.analysis import Basis
from otel_rl.export import RunInfo
from otel_rl.recorder.agent.hardware.poller import Poller
from otel_rl.recorder.agent.hardware.processes import TrainerProcess
from otel_rl.recorder.agent.output import presence
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.recorder.agent.steps.analyses import Analyses, registered
from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.journal.records import Started
from otel_rl.recorder.settings.settings import AgentSettings, Flops
from otel_rl.semconv.vocabulary import Vocabulary
from otel_rl_exporters.prometheus import PrometheusReader

_LOCAL = 8
_WORLDS = (1, 8, 64, 1024)


def measure() -> list[Table]:
    """Return the series of runs of 1 to 1,024 ranks, with eight ranks on a machine."""
    head, other = page(min(_LOCAL, max(_WORLDS)), is_head=True), page(_LOCAL, is_head=False)
    rows: list[list[Cell]] = []
    for world in _WORLDS:
        machines = -(-world // _LOCAL)
        of_head = page(world, is_head=True) if world < _LOCAL else head
        rows.append([world, machines, of_head, other if machines > 1 else 0, of_head + (machines - 1) * other])
    each = (page(_LOCAL, is_head=False) - page(1, is_head=False)) / (_LOCAL - 1)
    note = (
        f"Counted on the pages of agents of machines with {_LOCAL} ranks: 200 names that no dialect knows, "
        f"{len(PHASES)} phases, two of them stages, two exporters, the host without GPUs. Each rank adds "
        f"{each:.0f}; a GPU has 17 (with a stand-in for NVML), and one more for each phase."
    )
    return [Table("Series in Prometheus", ["ranks", "machines", "head", "each other", "all"], rows, note)]


def page(ranks: int, *, is_head: bool) -> int:
    """Return how many series the page of a machine with so many ranks has."""
    vocabulary = Vocabulary("verl")
    quarantine, basis = Quarantine(), Basis(state=State(), vocabulary=vocabulary, settings=AgentSettings())
    analyses = Analyses(registered(quarantine), basis, quarantine, {})
    reductions = Reductions({}, vocabulary.read)
    reducer = Reducer("run", reductions, vocabulary, Flops(), 10.0, basis.state, analyses=analyses)
    reader = PrometheusReader(RunInfo("run", "p", "n", "."), port=19464)
    instruments = OtelMetrics(RunInfo("run", "p", "n", "."), [reader.reader], vocabulary)
    started = [Started("run", 0, rank, ranks, ranks, "", 1, "host", 4096, 0) for rank in range(ranks)]
    reducer.feed([(f"rank{one.rank}", one) for one in started])
    for step in range(25):
        made = reducer.feed([(f"rank{rank}", one) for rank in range(ranks) for one in records(rank, step)])
        if is_head:
            instruments.show(made.items)
        instruments.show_phases(made.phases)
    journals = reducer.state.journals
    instruments.show_journals(journals.values())
    instruments.show_points("presence", presence.points(journals.values(), vocabulary, time.time_ns()))
    for name, points in reducer.analyses.points(of_run=is_head):
        instruments.show_points(f"analysis {name}", points)
    for name in ("delivered", "failures"):
        instruments.show_totals(f"rl.telemetry.{name}", "rl.exporter", {"jsonl": 1, "wandb": 1})
    instruments.show_totals("rl.telemetry.dropped", "error.type", dict.fromkeys("abcdefghi", 0))
    _show_machine(instruments, ranks)
    with urllib.request.urlopen(str(reader.address)) as answer:
        lines = answer.read().decode().splitlines()
    reader.shutdown()
    instruments.shutdown(1)
    return sum(not line.startswith("#") for line in lines)


def _show_machine(instruments: OtelMetrics, ranks: int) -> None:
    """Measure this machine twice, each rank being this process: rates need two."""
    poller = Poller(0.2)
    poller.watch([TrainerProcess(os.getpid(), rank, "", None, time.time_ns()) for rank in range(ranks)])
    poller.start()
    time.sleep(1.5)
    for measurement in poller.pop():
        instruments.show_points(measurement.probe, measurement.points)
    poller.stop()
