"""Starts in which the ranks do not agree on how often they have started: every row has the values of all ranks."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector import free_port
from tests.distributed.machines import RANK, head
from tests.processes import rows_of, start_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STEPS = 60


class Starts:
    """Starts of two ranks on one machine, or on two that do not share a directory and have a head."""

    def __init__(self, place: Path, machines: int) -> None:
        self._place, self._machines = place, machines
        self._head = head() if machines > 1 else ""
        self._ports = [str(free_port()) for _ in range(machines)]
        self.running: list[subprocess.Popen[str]] = []
        (place / "go").touch()

    def start(self, rank: int, world: int = 2, **more: str) -> subprocess.Popen[str]:
        """Start a rank, and wait until it has begun."""
        machine = rank % self._machines
        node = self._place / f"node{machine}"
        node.mkdir(exist_ok=True)
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": world // self._machines or 1,
            "GROUP_RANK": machine,
            "HEAD": self._head,
            "STEPS": STEPS,
            "PAUSE": 0,
            "DEADLINE": 60,
            "MEETS": 1,
            "OTEL_EXPORTER_PROMETHEUS_PORT": self._ports[machine],
            "OTEL_RL_TOKEN": "a-secret-of-the-tests",
        }
        process = start_python(RANK, node, **{name: str(value) for name, value in numbers.items()} | more)
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), process.communicate()[1]
        return process

    def fail(self, *ranks: int, world: int = 2) -> None:
        """Start some ranks, which are killed in their third step, or before if others are absent."""
        started = [self.start(rank, world, DIES_IN="3") for rank in ranks]
        if len(ranks) < world:
            started[0].kill()
        started[0].wait(60)
        for process in started:
            process.kill()
            process.wait(60)
        for mark in self._place.glob("at.*"):
            mark.unlink()

    def train(self, *ranks: int) -> None:
        """Start ranks that end well, in this order."""
        for process in [self.start(rank) for rank in ranks]:
            output, errors = process.communicate(timeout=120)
            assert output.split()[-1:] == ["True"], errors

    def check(self, attempt: int) -> None:
        """Each step has one row of the attempt, with what both ranks logged."""
        rows = [row for row in rows_of(self._place / "node0" / "p" / "run-7") if row["attempt"] == attempt]
        assert [row["step"] for row in rows] == [*range(STEPS)]
        for row in rows:
            pooled = [float(row["step"] + r) for rank in range(2) for r in range(rank + 1)]  # type: ignore[operator]
            assert row["values"]["reward/mean"] == statistics.fmean(pooled), row  # type: ignore[index]


@pytest.fixture(params=[1, 2], ids=["one-machine", "two-machines"])
def starts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Starts]:
    """Return starts on one machine, or on two with a head."""
    found = Starts(tmp_path, request.param)
    yield found
    for process in found.running:
        process.kill()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_rank_that_died_before_init(starts: Starts, order: tuple[int, int]) -> None:
    """Rank 1 never began at the first start; the second start is one attempt for both, whoever comes first."""
    starts.fail(0)
    starts.train(*order)

    starts.check(1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_start_without_one_of_the_ranks(starts: Starts, order: tuple[int, int]) -> None:
    """Two ranks, one, and two again share an id: three attempts, the last one of both ranks."""
    starts.fail(0, 1)
    starts.fail(0, world=1)
    starts.train(*order)

    starts.check(2)
