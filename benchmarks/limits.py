"""64 simulated ranks, a Collector between their agents and the head, and the link cut: memory, queues and rows.

It needs `otelcol` on PATH, which `.ci/servers` builds, and the extra `dev`. On request only.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import psutil

from benchmarks import simulated_cluster, simulated_ranks
from benchmarks.recording import PHASES
from benchmarks.simulated_cluster import LOCAL, MACHINES, PERIOD_S
from benchmarks.tables import Cell, Table
from otel_rl.recorder.directory import agent_start

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.simulated_cluster import Cluster

CUT_S = 600
_BEFORE_S, _AFTER_S, _SAMPLE_S = 30, 30, 10.0
_PATIENCE_S = 1800.0
_MIB = 1 << 20
_LIMITED_S, _TOO_LITTLE_MIB = 120, 8
"""How long the link is cut where the Collector may have too little memory, and how much: its heap needs 4 to 23 MiB."""
_COLUMNS = [
    *("after the cut", "head, RSS", "largest agent, RSS", "Collector, RSS", "Collector, heap", "queue"),
    *("queue on disk", "agent's disk", "log records refused", "rows at the head"),
]
_NOTE = (
    f"{MACHINES} machines with {LOCAL} ranks each, simulated on one host: each rank has one step per second, with "
    f"{len(PHASES)} phases and {simulated_ranks.VALUES + 1} values. The agents of {MACHINES - 1} machines share one "
    "Collector with `node.yaml`, so a machine has a part of its queue. Resident memory of the Collector includes the "
    "pages of its queue's file, which the kernel can drop. The agents' disk includes what journals and outbox reserve."
)


class Sample(NamedTuple):
    """The state at one moment: seconds since the cut, then memory and disk in MiB, and counts."""

    at: float
    head: float
    agents: float
    collector: float
    heap: float
    queued: float
    queue_disk: float
    agents_disk: float
    refused: int
    rows: int


def measure(*, cut: int = CUT_S) -> list[Table]:
    """Return memory and queues while the link is cut, the same with too little memory, and what became of the rows."""
    whole, limited = play(cut), play(min(cut, _LIMITED_S), _TOO_LITTLE_MIB)
    verdicts: list[list[Cell]] = [
        ["as in its file", *_verdict(whole)],
        [f"{_TOO_LITTLE_MIB} MiB", *_verdict(limited)],
    ]
    columns = ["`memory_limiter`", "cut s", "log records refused", "rows", "lost", "doubled", "incomplete"]
    return [
        Table("The link to the head is cut: MiB, and rows", _COLUMNS, _shown(whole), _NOTE),
        Table("The same with too little memory for the Collector", _COLUMNS, _shown(limited)),
        Table("Rows at the head afterwards", columns, verdicts),
    ]


class Played(NamedTuple):
    """A play: for how long the link was cut, the states, and the verdict on the rows."""

    cut_s: int
    samples: list[Sample]
    verdict: dict[str, int]


def play(cut_s: int, limit_mib: int = 0) -> Played:
    """Cut the link for so long, and wait until all is delivered."""
    steps = int((_BEFORE_S + cut_s + _AFTER_S) / PERIOD_S)
    samples: list[Sample] = []
    with simulated_cluster.cluster(steps, limit_mib) as cluster:
        cut_at = time.monotonic() + _BEFORE_S
        mended_at = cut_at + cut_s
        while not cluster.has_ended() and (now := time.monotonic()) < mended_at + _PATIENCE_S:
            cluster.link.cut() if cut_at <= now < mended_at else cluster.link.mend()
            samples.append(sampled(cluster, now - cut_at))
            print(samples[-1], file=sys.stderr, flush=True)
            time.sleep(_SAMPLE_S)
        return Played(cut_s, samples, judged(cluster.rows(), steps))


def sampled(cluster: Cluster, at: float) -> Sample:
    """Return the state now."""
    head, *agents = (_rss(agent_start.read_status(run).pid) for run in cluster.runs)
    own = cluster.collector.metrics()
    disk = [_disk(run.local) for run in cluster.runs[1:]]
    return Sample(
        at,
        head,
        max(agents),
        _rss(cluster.collector.pid),
        own.get("otelcol_process_runtime_heap_alloc_bytes", 0) / _MIB,
        own.get("otelcol_exporter_queue_size", 0) / _MIB,
        _disk(cluster.directory / "queue"),
        max(disk),
        round(own.get("otelcol_receiver_refused_log_records", 0)),
        len(cluster.rows()),
    )


def _shown(played: Played) -> list[list[Cell]]:
    """Return the states nearest to some moments, and the highest of each figure."""
    moments = [-_SAMPLE_S, *(part * played.cut_s for part in (0.25, 0.5, 0.75, 1)), played.cut_s + 2 * _SAMPLE_S]
    chosen = [min(played.samples, key=lambda one: abs(one.at - moment)) for moment in moments]
    rows: list[list[Cell]] = [[f"{one.at:+.0f} s", *one[1:]] for one in dict.fromkeys([*chosen, played.samples[-1]])]
    return [*rows, ["highest", *(max(figures) for figures in list(zip(*played.samples, strict=True))[1:])]]


def _verdict(played: Played) -> list[Cell]:
    return [played.cut_s, max(one.refused for one in played.samples), *played.verdict.values()]


def judged(encoded: list[bytes], steps: int) -> dict[str, int]:
    """Return how many rows there are, and how many are missing, doubled or without all ranks."""
    rows = [msgspec.json.decode(line) for line in encoded]
    found = [row["step"] for row in rows]
    mean = (MACHINES * LOCAL - 1) / 2
    return {
        "rows": len(rows),
        "lost": len(set(range(steps)) - set(found)),
        "doubled": len(found) - len(set(found)),
        "incomplete": sum("missing_ranks" in row or row["values"]["rank"] != mean for row in rows),
    }


def _rss(pid: int) -> float:
    with contextlib.suppress(psutil.NoSuchProcess, ValueError):
        return float(psutil.Process(pid).memory_info().rss / _MIB)
    return 0.0


def _disk(directory: Path) -> float:
    """Return MiB that the files of a directory occupy; some may go meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_blocks * 512
    return total / _MIB
