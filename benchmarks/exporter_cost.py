"""Whether an exporter in trouble can be felt by the trainer."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.collectors import COLLECTORS
from benchmarks.measuring import cost, ratio, summarize
from benchmarks.recording import directory
from benchmarks.tables import Cell, Table
from benchmarks.trainer import Outcome

_ROUNDS, _STEPS, _PAUSE_S = 5, 1000, 0.004


def measure() -> list[Table]:
    """Return what `log` and `finish` took under each kind of trouble, in turns, each in its own process."""
    outcomes: dict[str, list[Outcome]] = {kind: [] for kind in COLLECTORS}
    kinds = list(COLLECTORS)
    for number in range(_ROUNDS):
        for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            with COLLECTORS[kind]() as url:
                outcomes[kind].append(_train(url))
    rounds = {kind: [summarize(one.took) for one in found] for kind, found in outcomes.items()}
    healthy = rounds[kinds[0]]
    rows: list[list[Cell]] = []
    for kind, found in outcomes.items():
        rows.append(
            [
                kind,
                *cost(rounds[kind]),
                ratio(rounds[kind], healthy),
                statistics.median(one.finish_s for one in found),
                max(one.finish_s for one in found),
                " ".join(sorted({str(one.delivered) for one in found})),
                min(one.rows for one in found),
                statistics.median(one.failures for one in found),
            ]
        )
    columns = ["collector", "log p50 µs", "p99 µs", "worst µs", "p50 ÷ none", "finish s", "worst s", "returned"]
    columns += ["rows", "failures"]
    note = (
        f"{_ROUNDS} rounds; each is a process of {_STEPS} steps (100 floats, 5 phases, {_PAUSE_S * 1e3:.0f} ms apart) "
        "with spans, step events and metrics going to the collector, and rows to a local JSONL file. `finish s` is "
        "the median of `finish(timeout=5)`; `rows` the fewest that the JSONL file then had; `failures` the median of "
        "deliveries that had failed."
    )
    return [Table("Collectors in trouble", columns, rows, note)]


def _train(url: str) -> Outcome:
    signals = {
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
    }
    chosen = signals if url else {"OTEL_METRICS_EXPORTER": "none"}
    with directory() as place:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.trainer", str(place), str(_STEPS), str(_PAUSE_S)],
            env=os.environ | chosen,
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            check=True,
        )
    return msgspec.json.decode(done.stdout, type=Outcome)
