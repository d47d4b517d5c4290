"""Trainings that are played at other times: the agent's reducer gets their records, the archive what it makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import otel_rl
from otel_rl.export import Item
from otel_rl.look.reader.runs import RunReader
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.journal.ids import packed_step_ids
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import (
    Consumed,
    DeviceMemory,
    DeviceSeen,
    Finished,
    Happened,
    Logged,
    Record,
    SpanEnded,
    SpanStarted,
    Started,
    StepEnded,
    StepStarted,
)
from otel_rl.recorder.trainer.tickets import consumed
from tests.recorder.agent.reducing import reducing

S = 1_000_000_000
GIB = 1 << 30
BEGAN = 1_764_000_000 * S
PHASES = {"generate": 24.0, "reward": 2.0, "update_actor": 10.0, "weight_sync": 4.0}
"""Seconds of the phases of a step; the last one ends on all ranks together."""
RUN = "run"  # the id of `reducing`


class Played(msgspec.Struct, kw_only=True):
    """A training to be played."""

    ranks: int = 1  # number of ranks
    hosts: tuple[str, ...] = ("node1",)  # the machine of each rank; with fewer machines, ranks share the last one
    phases: Callable[[int, int], Mapping[str, float]] = lambda _step, _rank: PHASES
    """Seconds of each phase, for a step and a rank."""
    values: Callable[[int, int], Mapping[str, float]] = lambda _step, _rank: {}
    """Values that each rank logs, for a step and a rank."""
    tickets: Callable[[int], Mapping[str, Sequence[dict[str, Any]]]] | None = None
    """Trajectories by outcome, which rank 0 consumes in a step."""
    memory: Callable[[int, int], float] | None = None
    """Bytes that are allocated at the end of a step, for a step and a rank; of a device of 80 GiB."""
    happens: Mapping[int, Sequence[tuple[int, str, dict[str, Any]]]] = {}  # events of a step, by rank
    between: float = 0.1  # seconds between two steps


class Player:
    """Plays a training, attempt by attempt, into a run directory."""

    def __init__(self, directory: Path, training: Played, limit: int = 1 << 60) -> None:
        self.directory, self.training = directory, training
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run.json").write_text(json.dumps({"id": RUN, "project": "grpo", "name": "baseline"}))
        self._reducer = reducing()
        self._writer = ArchiveWriter(directory / ARCHIVE / "local", limit)
        self._attempt, self._span = -1, 0
        self.now = BEGAN
        self.items: list[Item] = []

    def start(self, after: float = 0.0) -> None:
        """Start an attempt on all ranks."""
        self._attempt += 1
        self.now += round(after * S)
        ranks, hosts = self.training.ranks, self.training.hosts
        for rank in range(ranks):
            host = hosts[min(rank, len(hosts) - 1)]
            started = Started(RUN, self._attempt, rank, ranks, ranks, "", 100 + rank, host, 4096, self.now)
            self._put(rank, started)
            if self.training.memory is not None:
                self._put(rank, DeviceSeen(self.now, 0, f"GPU-{rank}", "H100", 80 * GIB))

    def step(self, number: int, *, dies: Mapping[int, str] | None = None) -> None:
        """Play a step; ranks in `dies` die or stop inside a phase of it, and the others wait in the last phase."""
        training, began = self.training, self.now
        takes = [training.phases(number, rank) for rank in range(training.ranks)]
        last = max((sum([*take.values()][:-1]) for take in takes), default=0.0) + max(
            [*take.values()][-1] for take in takes if take
        )
        for rank, of_rank in enumerate(takes):
            at, left = began, began + round(last * S)
            self._put(rank, StepStarted(number, began, b"", self._devices(number - 1, rank)))
            values = training.values(number, rank)
            if values:
                self._put(rank, Logged(number, began + 1, dict(values)))
            for n, (phase, seconds) in enumerate(of_rank.items()):
                end = left if n == len(of_rank) - 1 else at + round(seconds * S)
                span = self._enter(number, rank, phase, at)
                if dies and (phase == dies.get(rank) or (rank not in dies and n == len(of_rank) - 1)):
                    break
                memory = self._devices(number, rank)
                self._put(rank, SpanEnded(span, end, b"", devices=memory))
                at = end
            else:
                for who, name, attributes in training.happens.get(number, ()):
                    if who == rank:
                        self._put(rank, Happened(name, at, attributes, number))
                if training.tickets is not None and rank == 0:
                    for outcome, tickets in training.tickets(number).items():
                        records: list[Consumed] = []
                        records += consumed(tickets, number, at, number, outcome, lambda _: None)
                        for record in records:
                            self._put(rank, record)
                self._put(rank, StepEnded(number, at, b"", devices=self._devices(number, rank)))
            self.now = max(self.now, at)
        self.now += round(training.between * S)
        if number % 64 == 63:
            self._write()

    def steps(self, numbers: range) -> None:
        """Play steps."""
        for number in numbers:
            self.step(number)

    def finish(self, outcome: str = "finished", error: tuple[str, str] | None = None, code: int = 0) -> None:
        """End all ranks."""
        for rank in range(self.training.ranks):
            self._put(rank, Finished(self.now, outcome, error, code))  # type: ignore[arg-type]
        self._write()

    def lose(self, *ranks: int) -> None:
        """Lose ranks, without a word of them."""
        for rank in ranks:
            self._put(rank, Lost(self.now))
        self.items += self._reducer.tick(self.now + 60 * S).items
        self._write()

    def open(self) -> RunReader:
        """Return a reader of what was played."""
        self._write()
        return otel_rl.open_run(self.directory)

    def add(self, *items: Item) -> None:
        """Add items of the agent, such as measurements of machines."""
        self.items += items

    def _enter(self, step: int, rank: int, phase: str, at: int) -> int:
        self._span += 1
        trace, root = packed_step_ids(RUN, self._attempt, step)
        devices = self._devices(step - 1, rank)
        self._put(rank, SpanStarted(self._span, root, trace, step, phase, at, b"", devices=devices))
        return self._span

    def _devices(self, step: int, rank: int) -> list[DeviceMemory] | None:
        if self.training.memory is None:
            return None
        level = round(self.training.memory(step, rank))
        return [DeviceMemory(0, level, level + GIB, level + 4 * GIB, level + 5 * GIB)]

    def _put(self, rank: int, record: Record) -> None:
        self.items += self._reducer.feed([(f"rank{rank}.attempt{self._attempt}", record)]).items

    def _write(self) -> None:
        for item in self.items:
            self._writer.add(item)
        self.items.clear()
        self._writer.save()


def play(directory: Path, training: Played, steps: int, outcome: str = "finished") -> RunReader:
    """Play a training of one attempt to its end."""
    player = Player(directory, training)
    player.start()
    player.steps(range(steps))
    player.finish(outcome)
    return player.open()
