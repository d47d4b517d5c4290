"""Starts in which the ranks do not agree on how often they have started: every row has the values of all ranks."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
from tests.collector import free_port, wait_for
from tests.distributed.machines import head
from tests.processes import rows_of, start

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
LATER = 60
_TRAINER = """
import os, signal, sys, time
from pathlib import Path
import otel_rl
begin, end, dies_in = map(int, sys.argv[1:])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = dict(dir=".", project="p", id="run", exporters=["jsonl"], rows={"deadline": 60})  # of a slow machine
run = otel_rl.init(**where, head=os.environ.get("HEAD"), hardware=False, quiet=True)
print(run.attempt, flush=True)
time.sleep(float(os.environ.get("LOADS", 0)))  # the checkpoint
def at(rank):
    try:
        return int(Path("..", f"at.{rank}").read_text() or -1)
    except FileNotFoundError:
        return -1
for n in range(begin, end):
    with run.step(n):
        run.log({"x": float(100 * rank + n), "count@sum": 1.0})
        if n == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)
        Path("..", f"at.{rank}").write_text(str(n))
        while any(at(other) < n for other in range(world)):  # as in a collective operation
            time.sleep(0.01)
print(run.finish(60), flush=True)
"""


class Ranks:
    """Two ranks on one machine, or on two that do not share a directory."""

    def __init__(self, place: Path, *, machines: int) -> None:
        self._place, self._machines = place, machines
        self._more = {"OTEL_RL_TOKEN": "secret", "HEAD": head()} if machines > 1 else {}
        self._ports = [str(free_port()) for _ in range(machines)]
        self.running: list[subprocess.Popen[str]] = []

    def start(
        self, rank: int, begin: int, end: int, dies_in: int = -1, world: int = 2, **more: str
    ) -> tuple[subprocess.Popen[str], int]:
        """Start a rank; return its process and its attempt."""
        machine = rank % self._machines
        node = self._place / f"node{machine}"
        node.mkdir(exist_ok=True)
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": world // self._machines or 1,
            "GROUP_RANK": machine,
        }
        environment = {name: str(value) for name, value in numbers.items()} | self._more | more
        environment["OTEL_EXPORTER_PROMETHEUS_PORT"] = self._ports[machine]
        command = [sys.executable, "-c", _TRAINER, str(begin), str(end), str(dies_in)]
        process = start(command, node, **environment)
        self.running.append(process)
        return process, int(process.stdout.readline())  # type: ignore[union-attr]

    def fail(self, *ranks: int, world: int = 2) -> set[int]:
        """Start some ranks, which are killed in their third step, or before; return their attempts."""
        started = [self.start(rank, 0, 9, dies_in=3, world=world) for rank in ranks]
        if len(ranks) < world:
            started[0][0].kill()
        started[0][0].wait(60)
        for process, _ in started:
            process.kill()
            process.wait(60)
        for mark in self._place.glob("at.*"):
            mark.unlink()
        return {attempt for _, attempt in started}

    def train(self, *ranks: int) -> set[int]:
        """Start ranks that end well, in this order; return their attempts."""
        started = [self.start(rank, 0, LATER) for rank in ranks]
        for process, _ in started:
            assert self.end(process)
        return {attempt for _, attempt in started}

    def end(self, process: subprocess.Popen[str]) -> bool:
        """Wait for the end of a rank; return what `finish` said."""
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return output.split()[-1] == "True"

    def kill_agent(self) -> None:
        """Kill the agent of rank 0; its supervisor starts another one."""
        directory = directories.at(self.run)
        killed = agent_start.read_status(directory).pid
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: agent_start.read_status(directory).pid != killed, "the agent is not replaced")

    @property
    def run(self) -> Path:
        """The run directory of rank 0."""
        return self._place / "node0" / "p" / "run"

    def check(self, attempt: int, steps: range) -> None:
        """Each of the steps has one row of the attempt, in which both ranks are."""
        rows = [row for row in rows_of(self.run) if row["attempt"] == attempt and row["step"] in steps]
        assert [row["step"] for row in rows] == [*steps]
        for row in rows:
            n = row["step"]
            assert row["values"] | {"x": n + 50.0, "count": 2.0} == row["values"], row
            assert "missing_ranks" not in row or n == steps[0]


@pytest.fixture(params=[1, 2], ids=["one-machine", "two-machines"])
def ranks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ranks]:
    """Return the ranks of one machine, or of two with a head."""
    found = Ranks(tmp_path, machines=request.param)
    yield found
    for process in found.running:
        process.kill()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_rank_that_died_before_init(ranks: Ranks, order: tuple[int, int]) -> None:
    """Rank 1 never began at the first start; the second start is one attempt for both, whoever comes first."""
    ranks.fail(0)
    ranks.train(*order)

    ranks.check(1, range(LATER))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_start_without_one_of_the_ranks(ranks: Ranks, order: tuple[int, int]) -> None:
    """Two ranks, one, and two again share an id: three attempts, the last one of both ranks."""
    ranks.fail(0, 1)
    ranks.fail(0, world=1)
    ranks.train(*order)

    ranks.check(2, range(LATER))


@pytest.mark.parametrize("launcher", ["actor", "torchft", "agent-killed"])
def test_a_rank_that_comes_back_alone(ranks: Ranks, launcher: str) -> None:
    """As an actor of Ray, and a replica of torchft below a torchrun of its own; and while the agent is killed."""
    torchrun = {rank: {"TORCHELASTIC_RUN_ID": f"replica{rank}"} for rank in (0, 1)} if launcher == "torchft" else {}
    for rank, restarts in ((0, 0), (1, 0)):
        if torchrun:
            torchrun[rank]["TORCHELASTIC_ERROR_FILE"] = f"/tmp/replica{rank}/attempt_{restarts}/0/error.json"
    stays, attempt = ranks.start(0, 0, 10 + LATER, **torchrun.get(0, {}))
    dies, _ = ranks.start(1, 0, 10 + LATER, dies_in=10, **torchrun.get(1, {}))
    dies.wait(60)
    if launcher == "agent-killed":
        ranks.kill_agent()
    again = {**torchrun[1], "TORCHELASTIC_RESTART_COUNT": "1"} if torchrun else {}
    back, _ = ranks.start(1, 10, 10 + LATER, LOADS="2", **again)

    assert attempt == 0
    assert [ranks.end(process) for process in (back, stays)] == [True, True]
    ranks.check(0, range(10, 10 + LATER))
    assert {row["attempt"] for row in rows_of(ranks.run)} == {0}
