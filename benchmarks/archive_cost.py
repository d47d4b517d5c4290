"""The archive of 200 metrics and 8 ranks of 10 phases a step: the agent's share, its size, and the time to read it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.tables import Cell, Table
from otel_rl import semconv
from otel_rl.export import Item, Row, RunInfo, Span
from otel_rl.recorder.journal.ids import RandomIds
from otel_rl_exporters.archive import ArchiveExporter

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 102_400
_METRICS, _RANKS, _PHASES = 200, 8, 10
_PEER_STEPS = 2048
_NAMES = [f"actor/metric_{n:03d}" for n in range(_METRICS)]
_READ = """
import sys, time
began = time.perf_counter()
import otel_rl
run = otel_rl.open_run(sys.argv[1])
len(run.attempts)
first = time.perf_counter()
values = run.rows(names="actor/metric_007")["value"]
print(first - began, time.perf_counter() - first, len(values))
"""


def measure(steps: int = STEPS) -> list[Table]:
    """Return the cost of an archive of so many steps, and that of other formats."""
    with tempfile.TemporaryDirectory(prefix="otel-rl-benchmark-") as name:
        run = RunInfo("archived", "benchmark", "archived", name, machine="node1")
        Path(name, "run.json").write_text(json.dumps({"id": run.id, "project": run.project, "name": run.name}))
        return [_written(run, steps), _read(name, steps), _others(Path(name))]


def _rows(steps: int) -> Iterator[Row]:
    """Yield rows of noise; half of the values have single precision."""
    dice = np.random.default_rng(0)
    for step in range(steps):
        noise = dice.normal(size=_METRICS)
        noise[::2] = noise[::2].astype(np.float32)
        yield Row(step, (step + 1) * 10**9, dict(zip(_NAMES, noise.tolist(), strict=True)), trace_id=f"{step:032x}")


def _spans(steps: int) -> Iterator[list[Span]]:
    """Yield the phases of all ranks for each step."""
    dice = np.random.default_rng(1)
    ids = [RandomIds() for _ in range(_RANKS)]
    for step in range(steps):
        took = dice.integers(1_000_000, 90_000_000, size=(_RANKS, _PHASES)).tolist()
        yield [
            Span(
                f"rl.phase_{n}",
                f"{step:032x}",
                f"{ids[rank].span_id():016x}",
                f"{step:016x}",
                (step + 1) * 10**9 + n * 10**8,
                (step + 1) * 10**9 + n * 10**8 + took[rank][n],
                {
                    semconv.RANK: rank,
                    semconv.LOOP_ITERATION: step,
                    semconv.PHASE: f"phase_{n}",
                    semconv.PHASE_PROCESS_MEMORY_START: 10**9 + step // 100 * 4096,
                    semconv.PHASE_PROCESS_MEMORY_END: 10**9 + step // 100 * 4096,
                },
            )
            for rank in range(_RANKS)
            for n in range(_PHASES)
        ]


def _written(run: RunInfo, steps: int) -> Table:
    made: Iterator[Item] = chain.from_iterable(
        (row, *spans) for row, spans in zip(_rows(steps), _spans(steps), strict=True)
    )
    first, cpu = next(made), 0.0  # NumPy has loaded what makes the noise
    highest, mapped = _memory()
    exporter = ArchiveExporter(run)
    for items in _batched(chain([first], made), exporter.batch_size):
        began = time.process_time()
        exporter.export(items)
        cpu += time.process_time() - began
    began = time.process_time()
    exporter.shutdown()
    cpu += time.process_time() - began
    highest, mapped = (now - before for now, before in zip(_memory(), (highest, mapped), strict=True))
    size = sum(path.stat().st_size for path in Path(run.directory, "archive").rglob("*.parquet"))
    row: list[Cell] = [f"{steps:,} steps", size / 2**20, size / steps, 1e3 * cpu / steps]
    row += [highest - mapped, mapped]
    columns = ["archive", "MiB", "bytes a step", "agent's CPU, ms a step", "memory, MiB more", "library's pages, MiB"]
    note = (
        "Targets for 100,000 steps: 200 MB; 0.3 ms; 20 MiB. Without pauses: a file each 50 steps, not each 10 s, of "
        "batches as the agent makes them. Memory is the highest; pages of arro3's file are not in it: the system "
        "shares them, and drops them when it needs their memory."
    )
    return Table("Written by the agent", columns, [row], note)


def _memory() -> tuple[float, float]:
    """Return the highest resident memory of this process, and what of it is mapped files now, in MiB."""
    found = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    highest, mapped = (int(found[name].split()[0]) / 1024 for name in ("VmHWM", "RssFile"))
    return highest, mapped


def _batched(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of so many items; the last one may be shorter."""
    while batch := list(islice(items, size)):
        yield batch


def _read(directory: str, steps: int) -> Table:
    rounds = []
    for _ in range(5):
        command = [sys.executable, "-c", _READ, directory]
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
        first, metric, found = asked.stdout.split()
        if int(found) != steps:
            raise RuntimeError(f"{found} of {steps} values were read")
        rounds.append((float(first), float(metric)))
    first, metric = (float(np.median(one)) for one in zip(*rounds, strict=True))
    row: list[Cell] = [f"{steps:,} steps", first, metric]
    columns = ["a new process", "first answer of open_run, s", "then one metric, s"]
    return Table("Read", columns, [row], "Medians of 5. Targets: 0.4 s, imports included; 0.1 s.")


def _others(place: Path) -> Table:
    """Return the sizes of other formats with the values alone, and the time to read one metric."""
    archive = RunInfo("p", "p", "p", str(place / "own"), machine="node1")
    exporter = ArchiveExporter(archive)
    exporter.export(list(_rows(_PEER_STEPS)))
    exporter.shutdown()
    (place / "own" / "run.json").write_text(json.dumps({"id": "p", "project": "p", "name": "p"}))
    own = sum(path.stat().st_size for path in (place / "own").rglob("*.parquet"))
    found = [_tensorboard(place), _wandb(place), _sqlite(place)]
    rows: list[list[Cell]] = [
        ["archive", own / _PEER_STEPS, 1.0, float(_read(str(place / "own"), _PEER_STEPS).rows[0][2])]
    ]  # type: ignore[arg-type]
    rows += [[name, size / _PEER_STEPS, size / own, seconds] for name, size, seconds in found]
    columns = [f"{_PEER_STEPS:,} rows", "bytes a row", "÷ archive", "one metric, s"]
    return Table("Other formats, values alone", columns, rows, "TensorBoard's floats have single precision.")


def _tensorboard(place: Path) -> tuple[str, int, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(place / "tensorboard"))
    for row in _rows(_PEER_STEPS):
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in row.values.items()]
        writer.add_event(Event(wall_time=row.time_unix_nano / 1e9, step=row.step, summary=Summary(value=scalars)))
    writer.close()
    began = time.perf_counter()
    events = EventAccumulator(str(place / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    if len(events.Scalars(_NAMES[7])) != _PEER_STEPS:
        raise RuntimeError("not all values were read")
    seconds = time.perf_counter() - began
    return "TensorBoard, EventAccumulator", _size(place / "tensorboard"), seconds


def _wandb(place: Path) -> tuple[str, int, None]:
    import wandb

    (place / "offline").mkdir()
    quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True)
    run = wandb.init(mode="offline", dir=str(place / "offline"), project="benchmark", settings=quiet)
    for row in _rows(_PEER_STEPS):
        run.log(row.values, step=row.step)
    run.finish()
    return "wandb offline, not readable", _size(place / "offline", "*.wandb"), None


def _sqlite(place: Path) -> tuple[str, int, float]:
    """Write a table as trackio does: a row of JSON for each step."""
    path = place / "trackio.db"
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run TEXT, step INTEGER, metrics TEXT)"
    )
    number = count()
    for row in _rows(_PEER_STEPS):
        database.execute(
            "INSERT INTO metrics VALUES (?, ?, ?, ?, ?)",
            (next(number), str(row.time_unix_nano), "run", row.step, json.dumps(row.values)),
        )
    database.commit()
    began = time.perf_counter()
    values = [json.loads(text)[_NAMES[7]] for (text,) in database.execute("SELECT metrics FROM metrics ORDER BY id")]
    seconds = time.perf_counter() - began
    database.close()
    if len(values) != _PEER_STEPS:
        raise RuntimeError("not all values were read")
    return "SQLite, as trackio", path.stat().st_size, seconds


def _size(place: Path, pattern: str = "*") -> int:
    return sum(path.stat().st_size for path in place.rglob(pattern) if path.is_file())
