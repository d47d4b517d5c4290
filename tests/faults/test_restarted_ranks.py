"""A rank of a real training that comes back alone: every later row has the values of all ranks."""

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
END = 70
_TRAINER = """
import os, signal, sys, time
from pathlib import Path
import otel_rl
begin, end, dies_in = map(int, sys.argv[1:])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = dict(dir=".", project="p", id="run", exporters=["jsonl"], rows={"deadline": 60})  # of a slow machine
run = otel_rl.init(**where, head=os.environ.get("HEAD"), hardware=False, quiet=True)
print("begun", flush=True)
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

    def start(self, rank: int, begin: int, dies_in: int = -1, **more: str) -> subprocess.Popen[str]:
        """Start a rank, at a step; return when it has begun."""
        machine = rank % self._machines
        node = self._place / f"node{machine}"
        node.mkdir(exist_ok=True)
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": 2,
            "LOCAL_WORLD_SIZE": 2 // self._machines,
            "GROUP_RANK": machine,
        }
        environment = {name: str(value) for name, value in numbers.items()} | self._more | more
        environment["OTEL_EXPORTER_PROMETHEUS_PORT"] = self._ports[machine]
        command = [sys.executable, "-c", _TRAINER, str(begin), str(END), str(dies_in)]
        process = start(command, node, **environment)
        self.running.append(process)
        assert process.stdout.readline() == "begun\n"  # type: ignore[union-attr]
        return process

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

    def check(self, steps: range) -> None:
        """There is one attempt; each of the steps has one row, in which both ranks are."""
        rows = rows_of(self.run)
        assert {row["attempt"] for row in rows} == {0}
        rows = [row for row in rows if row["step"] in steps]
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


@pytest.mark.parametrize("launcher", ["actor", "torchft", "agent-killed"])
def test_a_rank_that_comes_back_alone(ranks: Ranks, launcher: str) -> None:
    """As an actor of Ray, and a replica of torchft below a torchrun of its own; and while the agent is killed."""
    torchrun = {rank: {"TORCHELASTIC_RUN_ID": f"replica{rank}"} for rank in (0, 1)} if launcher == "torchft" else {}
    for rank, restarts in ((0, 0), (1, 0)):
        if torchrun:
            torchrun[rank]["TORCHELASTIC_ERROR_FILE"] = f"/tmp/replica{rank}/attempt_{restarts}/0/error.json"
    stays = ranks.start(0, 0, **torchrun.get(0, {}))
    dies = ranks.start(1, 0, dies_in=10, **torchrun.get(1, {}))
    dies.wait(60)
    if launcher == "agent-killed":
        ranks.kill_agent()
    again = {**torchrun[1], "TORCHELASTIC_RESTART_COUNT": "1"} if torchrun else {}
    back = ranks.start(1, 10, LOADS="2", **again)

    assert [ranks.end(process) for process in (back, stays)] == [True, True]
    ranks.check(range(10, END))
