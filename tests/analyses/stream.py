"""A run with all kinds of records, from which every analysis concludes something, and its facts.

`python -m tests.analyses.stream` prints the facts as JSON, with the analyses that are installed.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from otel_rl.analysis import Analysis, Basis, LoopTurn, Measurement, Point
from otel_rl.export import Event, Item, Row
from otel_rl.recorder.agent.steps.analyses import Analyses, registered
from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.journal import records as kinds
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.settings.settings import AgentSettings, Flops, Hardware
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.hardware.engine_pages import Vllm, serving

S, GIB, STEPS = 1_000_000_000, 1 << 30, 30
Named = tuple[str, kinds.Record]


def _started(rank: int, role: str = "") -> kinds.Started:
    return kinds.Started("run", 0, rank, 2, 2, role, 1, "host", 4096, 0)


def _devices(gib: int) -> list[kinds.DeviceMemory]:
    return [kinds.DeviceMemory(0, gib * GIB, gib * GIB, gib * GIB, gib * GIB, used=gib * GIB)]


def _step(rank: int, number: int) -> Iterator[kinds.Record]:
    """Yield the records of a step of 10 s: rank 1 samples for 1 s longer, and memory grows by 2 GiB in each step."""
    begin, late, span = number * 10 * S, rank * S, 10 * number + 1
    before, after = _devices(2 * number), _devices(2 * number + 2)
    yield kinds.StepStarted(number, begin, b"", before)
    yield kinds.SpanStarted(span, 0, bytes(16), number, "generate", begin, b"", None, before)
    yield kinds.SpanEnded(span, begin + 4 * S + late, b"", {"tokens": 100}, timed=True, devices=after)
    yield kinds.DeviceTimed(number, span, 3.5)
    yield kinds.SpanStarted(span + 1, 0, bytes(16), number, "sync", begin + 4 * S + late, b"", None, after)
    yield kinds.SpanEnded(span + 1, begin + 5 * S + 2, b"", devices=after)
    yield kinds.OnDevice(number, 1)
    values = {"reward": 0.5, "loss": float("nan") if number == 3 else 0.25, "x": number + rank, "tokens/s": 10.0}
    yield kinds.Logged(number, begin + 6 * S, values)
    yield kinds.OnDevice(number, -1)
    yield kinds.Observed(number, begin + 6 * S, {"lengths": array("d", [1.0, 2.0 + rank]).tobytes()})
    yield kinds.Printed(begin + 6 * S, "stdout", "a line")
    if rank == 0:
        rewards, segments = array("d", [1.0]).tobytes(), array("q", [0, number, 50]).tobytes()
        ids = kinds.IDS.pack(bytes(15) + b"\1", number + 1)
        outcome = "stale" if number % 3 == 2 else "trained"
        yield kinds.Consumed(number, begin + 7 * S, outcome, number + 1, ids, rewards, segments, {"tool": 1.0})
        yield kinds.Tabled(number, begin + 7 * S, "samples", ["text"], [("a",)])
        yield kinds.Fingerprint(number, begin + 8 * S, kinds.TRAINER, number, {"w": _sample(float(number))})
    yield kinds.StepEnded(number, begin + 9 * S, b"", devices=after)


def _sample(value: float) -> kinds.Sample:
    return kinds.Sample("float32", 0, 1, array("d", [value]).tobytes())


def records() -> Iterator[list[Named]]:
    """Yield the records of the run in batches: 30 steps, then a worker dies, and both ranks hang."""
    begun: list[Named] = [("rank0", _started(0)), ("rank1", _started(1)), ("rollout0", _started(0, "rollout"))]
    device = kinds.DeviceSeen(0, 0, "GPU-1", "H200", 80 * GIB)
    yield [*begun, ("rank0", kinds.Configured(0, {"lr": 0.1})), ("rank0", device), ("rank1", kinds.Refusals({"x": 1}))]
    for number in range(STEPS):
        at = number * 10 * S
        trajectory = kinds.SpanStarted(number + 1, 0, bytes(15) + b"\1", None, "rl.trajectory", at, b"", 1)
        said = kinds.WrittenMessage("assistant", "a")
        yield [
            ("rollout0", trajectory),
            ("rollout0", kinds.Wrote(at, bytes(15) + b"\1", number + 1, "", 0, [said], True)),
            ("rollout0", kinds.SpanEnded(number + 1, at + S, b"", {"rl.trajectory.tokens": 50})),
            ("rollout0", kinds.Fingerprint(number, at, kinds.ENGINE, None, {"w": _sample(number - 1.0)})),
            *(("rank0", record) for record in _step(0, number)),
            *(("rank1", record) for record in _step(1, number)),
        ]
    end = STEPS * 10 * S
    exhausted = kinds.Happened("rl.memory.exhausted", end, {"rl.memory.message": "full"}, STEPS)
    awaits: kinds.Awaited = {"awaits": "rollout 0"}
    waiting = kinds.SpanStarted(5001, 0, bytes(16), STEPS, "take", end, b"", awaits=awaits)
    yield [
        *(("rank0", record) for record in (kinds.StepStarted(STEPS, end, b""), exhausted, waiting)),
        ("rank1", kinds.StepStarted(STEPS, end, b"")),
        ("rollout0", kinds.SpanStarted(6001, 0, bytes(15) + b"\2", None, "rl.trajectory", end, b"", 1)),
        ("rollout0", Lost(end)),
        ("rollout0", Revived(end + 1)),
        ("rollout0", kinds.SpanStarted(6002, 0, bytes(15) + b"\3", None, "rl.trajectory", end + 2, b"", 1)),
        ("rollout0", Lost(end + 3)),
    ]


def last_records() -> list[Named]:
    """Return the end of the run."""
    end = STEPS * 10 * S + 100 * S
    return [(name, kinds.Finished(end)) for name in ("rank0", "rank1")]


def measured(number: int) -> list[Measurement]:
    """Return measurements of the machine in a step."""
    who, used = (("rl.process.scope", "tree"), ("rl.rank", 0)), (("system.memory.state", "used"),)
    gpu = (("hw.id", "GPU-1"),)
    host = (Point("system.memory.limit", 99 * GIB), Point("system.memory.usage", number * GIB, used))
    return [
        Measurement("host", number * 10 * S, host),
        Measurement("processes", number * 10 * S, (Point("process.memory.usage", number * GIB, who),)),
        Measurement("nvml", number * 10 * S, (Point("hw.gpu.utilization", 0.5, gpu), Point("hw.energy", number, gpu))),
    ]


Factories = Mapping[str, Callable[[Basis], Analysis]]


class Run:
    """A reducer with analyses, and the facts that they have made so far."""

    def __init__(self, factories: Factories, url: str, state: State | None = None, saved: Any = None) -> None:
        self.quarantine = Quarantine()
        settings = AgentSettings(stalled_after=10, hardware=Hardware(engines=(url,)))
        basis = Basis(state=state or State(), vocabulary=Vocabulary("auto"), settings=settings)
        self.analyses = Analyses(factories, basis, self.quarantine, saved or {})
        reductions = Reductions({}, basis.vocabulary.read)
        self.reducer = Reducer(
            *("run", reductions, basis.vocabulary, Flops(), 10, basis.state),
            quarantine=self.quarantine,
            analyses=self.analyses,
        )
        self.probes = self.analyses.probes()
        self.facts: Counter[str] = Counter()

    def feed(self, batch: list[Named], number: int) -> None:
        """Apply records and measurements."""
        for probe in self.probes:
            probe._now = lambda: number * 10 * S + 5 * S  # type: ignore[attr-defined]  # the clock of the run
            self.facts.update(f"measured {point.metric}={point.value}" for point in probe.read())
        self._note(self.reducer.feed(batch).items)
        self.analyses.measured(measured(number))

    def tick(self, now: int) -> None:
        """Look at the processes that live."""
        self._note(self.analyses.tick(LoopTurn(now, now / S, (), True)))

    def show(self) -> None:
        """Note points, and the parts of `now.json`."""
        for _, points in self.analyses.points(of_run=True):
            self.facts.update(f"point {point}" for point in points)
        self.facts.update(f"now {key} {msgspec.json.encode(part)!r}" for key, part in self.analyses.now().items())

    def _note(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, Row):
                kind = {name: "measured" if name in item.measured else "logged" for name in item.values}
                where = f"{item.attempt} {item.step} {item.part}"
                self.facts.update(f"{kind[name]} {where} {name}={value!r}" for name, value in item.values.items())
            elif isinstance(item, Event):
                self.facts[f"event {item}"] += 1
            else:
                self.facts[f"{type(item).__name__} {item}"] += 1


def facts(factories: Factories) -> Counter[str]:
    """Return what is recorded of the whole run, with these analyses."""
    server = Vllm()
    with serving(server.registry) as url:
        run = Run(factories, url)
        for number, batch in enumerate(records()):
            server.usage.labels(*server.engines[0]).set(0.01 * number)
            run.feed(batch, number)
        run.show()
        for second in (0, 20, 40):
            run.tick(STEPS * 10 * S + second * S)
        run.show()
        run.feed(last_records(), STEPS)
    assert run.quarantine.count == 0
    return run.facts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts(registered(Quarantine()))))
