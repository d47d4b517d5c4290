"""The archives that the page is measured with: many runs, long runs, and one of 64 ranks with 19 million spans.

They are made once, in `PAGE_ARCHIVES` or a directory of their own. The spans are written as whole columns, by the
archive's own writer of files: item by item they would take 15 minutes.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
from arro3.core import Array, DataType, RecordBatch

from otel_rl import semconv
from otel_rl.export import Ended, Params, Process, Row
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.columns import SEALED, array_of, picked, to_parquet
from otel_rl.recorder.archive.tables import SPANS
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.recorded import STARTED, Shape, record
from tests.look.terminal.nows import process, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

MANY, LONG = 1000, 50
STEPS = 100_000
RANKS = 64
WIDE_PHASES = ("generate", "ref_log_prob", "update_actor")
_METRICS = 20
_S = 1_000_000_000
_SEALED_EACH = 1024
_STEPS_OF_FILE = SPANS.sealed_items // (RANKS * len(WIDE_PHASES) + 1)


def many(top: Path) -> Path:
    """Return a directory with 1,000 runs of 300 steps, of which an agent has left its summary."""
    return _made(top / "many", _write_many)


def long(top: Path) -> Path:
    """Return a directory with 50 runs of 100,000 steps with 8 metrics."""
    return _made(top / "long", _write_long)


def wide(top: Path) -> Path:
    """Return a directory with a run of 100,000 steps of 64 ranks with 3 phases each."""
    return _made(top / "wide", _write_wide)


def _made(place: Path, write: Callable[[Path], None]) -> Path:
    if not place.exists():
        draft = place.with_name(f"{place.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        write(draft)
        draft.rename(place)
    return place


def _write_many(place: Path) -> None:
    first = record(place / "run0", Shape(steps=300, metrics=28))
    _end(first, 2)
    _copied(first, MANY)


def _write_long(place: Path) -> None:
    _written(place / "run0", ranks=1, metrics=8)
    _copied(place / "run0", LONG)


def _write_wide(place: Path) -> None:
    run = place / "run0"
    _written(run, ranks=RANKS, metrics=_METRICS)
    _write_spans(run / "archive" / "local")


def _copied(first: Path, number: int) -> None:
    """Copy a run by hard links; each copy has its own name."""
    for copy in range(1, number):
        target = first.with_name(f"run{copy}")
        shutil.copytree(first, target, copy_function=os.link)
        (target / "run.json").unlink()
        identity = json.loads((first / "run.json").read_text())
        identity |= {"id": f"{copy:016x}", "name": f"{identity['name']}-{copy}"}
        (target / "run.json").write_text(json.dumps(identity))


def _written(run: Path, *, ranks: int, metrics: int) -> None:
    """Write a run without spans."""
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"id": f"{0:016x}", "project": "page", "name": f"{ranks}-ranks"}))
    writer, chance = ArchiveWriter(run / "archive" / "local", 1 << 60), random.Random(7)
    writer.add(Params(STARTED, {"lr": 1e-6, "steps": STEPS}))
    ends = STARTED + STEPS * _S
    for rank in range(ranks):
        for ended, outcome in ((None, None), (ends, "finished")):
            host = f"node{1 + rank // 8}"
            writer.add(Process(0, "", rank, ranks, host, 4000 + rank, STARTED, ("NVIDIA H100",), ended, outcome))
    for step in range(STEPS):
        writer.add(Row(step, STARTED + (step + 1) * _S, _values(chance, step, metrics), trace_id=f"{step:032x}"))
        if step % _SEALED_EACH == _SEALED_EACH - 1:
            writer.save()
    writer.add(Ended(ends, 0, "finished", "", 0))
    writer.save(seals=True)
    _end(run, ranks)


def _end(run: Path, ranks: int) -> None:
    """Leave what an agent leaves of an ended run."""
    written(run, processes=[process(rank, outcome="finished") for rank in range(ranks)])


def _values(chance: random.Random, step: int, metrics: int) -> dict[str, float]:
    part = 1 - math.exp(-4 * step / STEPS)
    values = {
        "reward": 0.4 + 0.4 * part + chance.gauss(0, 0.02),
        "loss": chance.gauss(0.01, 0.02),
        "actor/kl": 0.3 * part + abs(chance.gauss(0, 0.02)),
        "entropy": 0.6 - 0.4 * part + chance.gauss(0, 0.01),
        "grad_norm": abs(chance.gauss(0.5, 0.1)),
        "completions/mean_length": 512 + chance.gauss(0, 12),
        "time/step": 1.0 + chance.gauss(0, 0.01),
        "perf/goodput": 0.82 + chance.gauss(0, 0.01),
    }
    return values | {f"train/extra_{number}": chance.random() for number in range(metrics - len(values))}


def _write_spans(machine: Path) -> None:
    dice, reached = np.random.default_rng(7), 0
    for first in range(0, STEPS, _STEPS_OF_FILE):
        numbers = np.arange(first, min(first + _STEPS_OF_FILE, STEPS))
        batch = RecordBatch.from_pydict(dict(_columns(numbers, dice)))
        data = to_parquet(SPANS, [batch], compression=SEALED)
        files.write(machine / SPANS.name, reached, reached + batch.num_rows, data)
        reached += batch.num_rows


def _columns(steps: np.ndarray[Any, Any], dice: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """Yield the columns of the spans of steps: three phases of each rank, and the step."""
    phases = len(WIDE_PHASES)
    lines = RANKS * phases + 1
    usual = np.array([0.5, 0.1, 0.35])
    took = (usual * dice.uniform(0.9, 1.05, (len(steps), RANKS, phases)) * _S).astype(np.int64)
    ends = np.cumsum(took, axis=2)
    ends[:, :, 1:] = np.maximum(ends[:, :, 1:], ends[:, :, 1:].max(axis=1, keepdims=True))  # they leave these together
    began = (STARTED + steps * _S)[:, None]
    starts = np.concatenate((np.zeros_like(ends[:, :, :1]), ends[:, :, :-1]), axis=2)
    start = np.column_stack((starts.reshape(len(steps), -1), np.zeros(len(steps), np.int64))) + began
    end = np.column_stack((ends.reshape(len(steps), -1), ends.max(axis=(1, 2)) + _S // 100)) + began
    what = np.tile(np.append(np.tile(np.arange(phases), RANKS), phases), len(steps))
    ranks = np.tile(np.append(np.repeat(np.arange(RANKS), phases), -1), len(steps))
    duration = (end - start).ravel()
    whole = {"start_unix_nano": start.ravel(), "duration_ns": duration}
    is_root, of_step = what == phases, np.repeat(np.arange(len(steps)), lines)
    few: dict[str, tuple[Sequence[Any], np.ndarray[Any, Any]]] = {
        "phase": ([*WIDE_PHASES, None], what),
        "name": ([*WIDE_PHASES, semconv.SPAN_LOOP], what),
        "rank": ([*range(RANKS), None], np.where(is_root, RANKS, ranks)),
        "attempt": ([None, 0], is_root.astype(int)),
        "step": (steps.tolist(), of_step),
        "trace_id": ([f"{step:032x}" for step in steps.tolist()], of_step),
        "parent_id": (["", *(f"{step:016x}" for step in steps.tolist())], np.where(is_root, 0, 1 + of_step)),
    }
    own = [None if root else took for root, took in zip(is_root.tolist(), duration.tolist(), strict=True)]
    ids = [f"{int(steps[0]) * lines + number:016x}" for number in range(len(what))]
    others = {"ok": False, "kind": 0}
    for column in SPANS.columns:
        name = column.name
        if name in whole:
            yield name, Array.from_numpy(np.ascontiguousarray(whole[name]))
        elif name in few:
            yield name, picked(column, few[name][0], array("i", few[name][1].astype(np.int32).tobytes()))
        elif name == "span_id":
            yield name, Array(ids, DataType.string())
        else:
            yield name, array_of(column, own if name == "own_ns" else [others.get(name)] * len(what))
