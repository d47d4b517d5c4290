"""Simulated trainings whose critical path is known: synchronous, one step off, and fully asynchronous ones.

Each duration has its own random number, so that a training with a delay and the one without it differ in nothing else.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

import otel_rl
from otel_rl import semconv
from otel_rl.export import AttributeValue, Item, Process, Span, Trajectory
from otel_rl.look.insight.span_work import SpanWork
from otel_rl.look.insight.why.answer import ExplainedSteps
from otel_rl.look.insight.why.conclude import explained_steps
from otel_rl.recorder.archive.writer import ArchiveWriter

Kind = Literal["synchronous", "one step off", "asynchronous"]
KINDS: tuple[Kind, ...] = ("synchronous", "one step off", "asynchronous")
Where = Literal["reward", "update_actor", "sync_weights", "tool", "verifier", "engine", "queue", "outside", "worker"]
PLACES: tuple[Where, ...] = (
    *("reward", "update_actor", "sync_weights", "tool", "verifier", "engine", "queue", "outside", "worker"),
)
"""Where a delay can be: a phase of one rank, a phase of all, a part of a trajectory, and so on."""
BEGAN = 1_764_000_000_000_000_000
_S = 1_000_000_000
_WAITS = {"synchronous": "generate", "one step off": "wait_rollouts", "asynchronous": "wait_rollouts"}
_REQUEST = "llm_request"
_OF_TRAJECTORIES = ("tool", "verifier", "engine", "worker")
_LEAST = 0.05
"""The part of the time of a step that a delay must cost to be a cause."""


class Plant(NamedTuple):
    """A delay: where, in which step, on which rank, worker, engine or trajectory, and how many seconds."""

    where: Where
    step: int
    of: int
    seconds: float


class Pipeline(NamedTuple):
    """A training to simulate."""

    kind: Kind
    seed: int
    ranks: int = 3
    workers: int = 3
    slots: int = 2
    batch: int = 10
    turns: int = 2
    engines: int = 2
    steps: int = 12
    clocks: float = 0.0
    plant: Plant | None = None

    def expected(self) -> SpanWork:
        """Return the work that the planted delay is part of."""
        assert self.plant is not None
        match self.plant.where:
            case "tool":
                return SpanWork("tool", "pytest")
            case "verifier":
                return SpanWork("verifier", "grader")
            case "engine":
                return SpanWork("request", _REQUEST)
            case "queue":
                return SpanWork("phase", _WAITS[self.kind])
            case "outside":
                return SpanWork("none", "")
            case "worker":
                return SpanWork("none", "rollout")
            case phase:
                return SpanWork("phase", phase)


class Simulation:
    """A simulated training, as items of the agent.

    Attributes:
        walls: The seconds of each step.
        waited: Whether each step waited for a trajectory that was delayed, or that began after one on its place.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._of = pipeline
        self.walls: list[float] = []
        self.waited: list[bool] = []
        self._items: list[tuple[str, Item]] = []
        self._ids = iter(range(1, 1 << 40))
        self._free = [[0.0] * pipeline.slots for _ in range(pipeline.workers)]
        self._late_until = [[-1.0] * pipeline.slots for _ in range(pipeline.workers)]
        self._ready: list[tuple[float, int, str, str, float]] = []
        self._started = 0
        self._run()

    def write(self, directory: Path) -> None:
        """Write the archive of the run, by clocks that differ."""
        directory.mkdir(parents=True)
        (directory / "run.json").write_text(json.dumps({"id": "simulated", "project": "grpo", "name": self._of.kind}))
        writer = ArchiveWriter(directory / "archive" / "local", 1 << 60)
        hosts = sorted({host for host, _ in self._items})
        chance = random.Random(f"{self._of.seed} clocks")
        offsets = {host: round(chance.uniform(-1, 1) * self._of.clocks * _S) for host in hosts} | {"node0": 0}
        for who, host in [*self._processes()]:
            writer.add(Process(0, who[0], who[1], self._of.ranks, host, 100, BEGAN, (), None, None, "", 0))
        for host, item in self._items:
            writer.add(_shifted(item, offsets[host]))
        writer.save(seals=True)

    def _processes(self) -> Iterator[tuple[tuple[str, int], str]]:
        for rank in range(self._of.ranks):
            yield ("", rank), _host_of_rank(rank)
        for worker in range(self._of.workers):
            yield ("rollout", worker), f"worker{worker}"

    def _takes(self, mean: float, *key: object, spread: float = 0.08) -> float:
        chance = random.Random(f"{self._of.seed} {key}")
        return mean * chance.lognormvariate(0.0, spread)

    def _late(self, where: Where, step: int, count: int) -> float:
        plant = self._of.plant
        return plant.seconds if plant and (plant.where, plant.step, plant.of) == (where, step, count) else 0.0

    def _run(self) -> None:
        settings = self._of
        at = 0.0
        if settings.kind == "one step off":
            self._batch(at)
        for step in range(settings.steps):
            if settings.kind == "asynchronous":
                self._flow()
            at = self._step(step, at)

    def _step(self, step: int, began: float) -> float:
        """Play a step of the trainer, and return its end."""
        settings = self._of
        trace, root = f"{step:032x}", self._id()
        ranks = range(settings.ranks)
        if settings.kind == "synchronous":
            self._batch(began)
        batch = [heapq.heappop(self._ready) for _ in range(settings.batch)]
        ready, *_, late_until = batch[-1]
        self.waited.append(late_until > began)
        if settings.kind != "synchronous":
            ready = max(ready, began)
        ready += 0.01 + self._late("queue", step, 0)
        at = dict.fromkeys(ranks, ready)
        self._phase(_WAITS[settings.kind], step, dict.fromkeys(ranks, began), at, (trace, root))
        for _, number, of_trace, span, _ in batch:
            self._items.append(
                ("node0", Trajectory(0, step, _ns(ready), 0, "trained", step, of_trace, span, 1.0, 100, (), number))
            )
        left = {
            rank: at[rank] + self._takes(1.0, step, "reward", rank, spread=0.03) + self._late("reward", step, rank)
            for rank in at
        }
        self._phase("reward", step, at, left, (trace, root))
        if settings.kind == "one step off":
            at = self._together("sync_weights", 0.5, step, left, (trace, root))
            self._batch(max(at.values()))
            at = self._together("update_actor", 8.0, step, at, (trace, root))
        else:
            at = self._together("update_actor", 3.0, step, left, (trace, root))
            at = self._together("sync_weights", 0.5, step, at, (trace, root))
        ended = max(at.values()) + 0.02 + self._late("outside", step, 0)
        attributes: dict[str, AttributeValue] = {semconv.LOOP_ITERATION: step, semconv.RUN_ATTEMPT: 0}
        loop = Span(semconv.SPAN_LOOP, trace, root, "", _ns(began), _ns(ended), attributes)
        self._items.append(("node0", loop))
        self.walls.append(ended - began)
        return ended

    def _together(
        self, phase: str, mean: float, step: int, came: dict[int, float], place: tuple[str, str]
    ) -> dict[int, float]:
        """Play a phase in which all ranks wait for the last one."""
        late = self._late("update_actor" if phase == "update_actor" else "sync_weights", step, 0)
        end = max(came.values()) + self._takes(mean, step, phase, spread=0.03) + late
        left = dict.fromkeys(came, end)
        self._phase(phase, step, came, left, place)
        return left

    def _phase(
        self, phase: str, step: int, came: dict[int, float], left: dict[int, float], place: tuple[str, str]
    ) -> None:
        for rank, began in came.items():
            attributes: dict[str, AttributeValue] = {semconv.RANK: rank, semconv.PHASE: phase}
            attributes[semconv.LOOP_ITERATION] = step
            span = Span(phase, place[0], self._id(), place[1], _ns(began), _ns(left[rank]), attributes)
            self._items.append((_host_of_rank(rank), span))

    def _batch(self, began: float) -> None:
        """Let all workers work on a batch from now on."""
        for slots in self._free:
            slots[:] = [max(free, began) for free in slots]
        self._late_until = [[-1.0] * self._of.slots for _ in self._free]
        for _ in range(self._of.batch):
            self._trajectory()

    def _flow(self) -> None:
        """Let workers go on until the next batch is there, and nothing that is still to begin can end before it."""
        batch = self._of.batch
        while len(self._ready) < batch or sorted(self._ready)[batch - 1][0] > min(map(min, self._free)):
            self._trajectory()

    def _trajectory(self) -> None:
        """Play a trajectory on the place of its worker that is free first."""
        settings, number = self._of, self._started
        self._started += 1
        worker = number % settings.workers
        slot = min(range(settings.slots), key=self._free[worker].__getitem__)
        of_step = number % settings.batch
        began = self._free[worker][slot] + 0.01 + (self._late("worker", number // settings.batch, of_step))
        trace, root = f"{0xA0000000 + number:032x}", self._id()
        at, host = began, f"worker{worker}"
        for turn in range(settings.turns):
            at = self._part("model", "", at, self._served(number, turn, at, trace, worker), trace, root, worker)
            if turn < settings.turns - 1:
                late = self._late("tool", number // settings.batch, of_step)
                tool = at + self._takes(1.0, number, turn, "tool") + late
                at = self._part("tool", "pytest", at, (tool, None), trace, root, worker)
        graded = at + self._takes(0.2, number, "verifier") + self._late("verifier", number // settings.batch, of_step)
        at = self._part("verifier", "grader", at, (graded, None), trace, root, worker)
        attributes: dict[str, AttributeValue] = {semconv.RANK: worker, semconv.ROLE: "rollout"}
        whole = Span(semconv.SPAN_TRAJECTORY, trace, root, "", _ns(began), _ns(at), attributes)
        self._items.append((host, whole))
        self._free[worker][slot] = at
        if self._is_delayed(number):
            self._late_until[worker][slot] = at
        heapq.heappush(self._ready, (at, number, trace, root, self._late_until[worker][slot]))

    def _is_delayed(self, number: int) -> bool:
        settings = self._of
        if settings.plant is None or settings.plant.step != number // settings.batch:
            return False
        if settings.plant.where == "engine":
            return settings.plant.of in {(number + turn) % settings.engines for turn in range(settings.turns)}
        return settings.plant.where in ("tool", "verifier", "worker") and settings.plant.of == number % settings.batch

    def _served(
        self, number: int, turn: int, at: float, trace: str, worker: int
    ) -> tuple[float, tuple[str, Item, str]]:
        """Return when a request is answered, and the span of the engine, whose parent is still to come."""
        settings = self._of
        engine = (number + turn) % settings.engines
        took = self._takes(1.5, number, turn, "model")
        plant = settings.plant
        if plant and plant.where == "engine" and (plant.of, plant.step) == (engine, number // settings.batch):
            took += plant.seconds
        began, ended = at + 0.002, at + 0.002 + took
        resource: dict[str, AttributeValue] = {"service.name": f"engine{engine}", "host.name": f"engine{engine}"}
        parent = self._id()
        span = Span(_REQUEST, trace, self._id(), parent, _ns(began), _ns(ended), resource=resource, kind=1)
        return ended + 0.002, (f"engine{engine}", span, parent)

    def _part(
        self,
        kind: str,
        name: str,
        began: float,
        ends: tuple[float, tuple[str, Item, str] | None],
        trace: str,
        root: str,
        worker: int,
    ) -> float:
        ended, request = ends
        attributes: dict[str, AttributeValue] = {semconv.RANK: worker, semconv.ROLE: "rollout"}
        if name:
            attributes[semconv.GEN_AI_TOOL_NAME if kind == "tool" else semconv.TRAJECTORY_PART_NAME] = name
        own = request[2] if request else self._id()
        span = Span(f"{semconv.SPAN_TRAJECTORY}.{kind}", trace, own, root, _ns(began), _ns(ended), attributes)
        self._items.append((f"worker{worker}", span))
        if request:
            self._items.append(request[:2])
        return ended

    def _id(self) -> str:
        return f"{next(self._ids):016x}"


class Case(NamedTuple):
    """A simulated training with a delay, the step that it made longer, and by how many seconds."""

    pipeline: Pipeline
    step: int
    seconds: float


def case(seed: int, clocks: float) -> Case | None:
    """Return a random training whose delay is on the critical path; `None` if others hide it."""
    chance = random.Random(seed)
    kind, where = chance.choice(KINDS), chance.choice(PLACES)
    ranks, engines, batch = chance.choice([2, 3, 4]), chance.choice([1, 2, 3]), chance.choice([6, 10, 16])
    place = chance.randrange({"reward": ranks, "engine": engines}.get(where, batch if where in _OF_TRAJECTORIES else 1))
    plain = Pipeline(
        *(kind, seed, ranks, chance.choice([2, 3]), chance.choice([1, 2, 4]), batch, chance.choice([1, 2, 3]), engines),
        clocks=clocks,
    )
    delayed = plain._replace(plant=Plant(where, chance.randrange(4, 9), place, chance.uniform(2, 12)))
    before, after = Simulation(plain), Simulation(delayed)
    longer = np.subtract(after.walls, before.walls)
    step = int(longer.argmax())
    is_waited_for = where not in _OF_TRAJECTORIES or after.waited[step]
    if longer[step] < _LEAST * after.walls[step] or step == plain.steps - 1 or not is_waited_for:
        return None
    return Case(delayed, step, float(longer[step]))


def explained(pipeline_case: Case, directory: Path) -> ExplainedSteps:
    """Return the answer for the step that a delay made longer."""
    Simulation(pipeline_case.pipeline).write(directory)
    return explained_steps(otel_rl.open_run(directory), (pipeline_case.step, pipeline_case.step))


def _host_of_rank(rank: int) -> str:
    return f"node{rank // 2}"


def _ns(seconds: float) -> int:
    return BEGAN + round(seconds * _S)


def _shifted(item: Item, offset: int) -> Item:
    if isinstance(item, Span):
        began, ended = item.start_unix_nano + offset, item.end_unix_nano + offset
        return msgspec.structs.replace(item, start_unix_nano=began, end_unix_nano=ended)
    return item
