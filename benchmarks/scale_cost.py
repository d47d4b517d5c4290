"""The work of one agent for more and more ranks. The records are generated, in the form that journals hold."""

from __future__ import annotations

import gzip
import multiprocessing
import resource
import time
from typing import TYPE_CHECKING

import msgspec
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from benchmarks.recording import PHASES
from benchmarks.tables import Cell, Table
from otel_rl.export import Recorded, RunInfo
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.journal.records import (
    Finished,
    Logged,
    Record,
    SpanEnded,
    SpanStarted,
    Started,
    StepEnded,
    StepStarted,
)
from otel_rl.recorder.settings.settings import Flops
from otel_rl.semconv.vocabulary import Vocabulary
from otel_rl_exporters.head import events

if TYPE_CHECKING:
    from collections.abc import Iterator

_METRICS = 200
_S = 1_000_000_000
_MEMORY = b"500000 250000 9000 1 0 90000 0\n"
_RANKS = ((1, 200), (8, 50), (64, 10), (1024, 3), (4096, 1))
_encode = msgspec.msgpack.Encoder().encode


def measure() -> list[Table]:
    """Return bytes, CPU and series for one agent that has 1 to 4,096 ranks."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = pool.starmap(_row, _RANKS, chunksize=1)
    columns = ["ranks of one agent", "agent CPU ms", "CPU µs a rank", "records/s", "checkpoint KB", "memory MB"]
    columns += ["outbox KB"]
    note = (
        f"A step of {_METRICS} floats and {len(PHASES)} phases on every rank: {_journaled()} bytes in its journal, and "
        f"{_sent()} from machine to machine, as OTLP and compressed. An agent has the ranks of one machine, mostly "
        "eight; the head has all of them, and the rows show that it is linear. The checkpoint is the largest there "
        "is, before the step is closed; memory is what it takes at most beyond an agent that has nothing to do."
    )
    return [Table("One step", columns, rows, note)]


def records(rank: int, step: int) -> Iterator[Record]:
    """Yield what a rank records in a step."""
    at = step * 10 * _S
    yield StepStarted(step, at, _MEMORY)
    for n, phase in enumerate(PHASES):
        yield SpanStarted(n + 1, 0, b"t" * 16, step, phase, at + n * _S, _MEMORY)
        yield SpanEnded(n + 1, at + (n + 1) * _S, _MEMORY)
    yield Logged(step, at + 6 * _S, {f"actor/metric_{n}": (n + rank) / 7 for n in range(_METRICS)})
    yield StepEnded(step, at + 7 * _S, _MEMORY)


def _row(ranks: int, steps: int) -> list[Cell]:
    vocabulary = Vocabulary("verl")
    reductions = Reductions({}, vocabulary.read)
    reducer = Reducer("run", reductions, vocabulary, Flops(), 10.0)
    reader = InMemoryMetricReader()
    instruments = OtelMetrics(RunInfo("run", "p", "n", "."), [reader], vocabulary)
    before = _memory()
    started = [Started("run", 0, rank, ranks, ranks, "", 1, "host", 4096, 0) for rank in range(ranks)]
    reducer.feed([(f"rank{one.rank}", one) for one in started])
    outbox = checkpoint = 0
    took: list[float] = []
    for step in range(steps + 1):
        given = [(f"rank{rank}", record) for rank in range(ranks) for record in records(rank, step)]
        ends = [one for one in given if isinstance(one[1], StepEnded)]
        began = time.process_time()
        made = reducer.feed(one for one in given if not isinstance(one[1], StepEnded))
        so_far = time.process_time() - began
        checkpoint = max(checkpoint, len(_encode(reducer.state)))
        began = time.process_time() - so_far
        made.add(reducer.feed(ends))
        instruments.show(made.items)
        instruments.show_phases(made.phases)
        took.append(time.process_time() - began)
        outbox += sum(len(_encode(item)) for item in made.items)
    reducer.feed([(f"rank{rank}", Finished(10**18)) for rank in range(ranks)])
    instruments.show_journals(reducer.state.journals.values())
    cpu = sorted(took[1:])[len(took[1:]) // 2]
    speed = ranks * len(list(records(0, 1))) / cpu
    memory = (_memory() - before) / 1e6
    return [ranks, cpu * 1e3, cpu * 1e6 / ranks, speed, checkpoint / 1e3, memory, outbox / steps / 1e3]


def _memory() -> int:
    """Return the most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _journaled() -> int:
    return sum(len(_encode(record)) for record in records(0, 1))


def _sent() -> int:
    recorded = Recorded("rank0.attempt0", 0, tuple(map(_encode, records(0, 1))))
    readable = [ReadableLogRecord(event, Resource({}), InstrumentationScope("otel_rl")) for event in events(recorded)]
    return len(gzip.compress(encode_logs(readable).SerializeToString()))
