"""Machines of a cluster, played by directories of their own: each has its agent, and they talk over loopback."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import free_port, wait_for
from tests.processes import rows_of, start_python

RANK = """
import os, pathlib, time, otel_rl
told = os.environ
place = dict(dir=".", project="p", id="run-7", head=told["HEAD"] or None, rows={"deadline": float(told["DEADLINE"])})
run = otel_rl.init(**place, quiet=True, hardware=bool(told.get("HARDWARE")))
print(run.dir, flush=True)
time.sleep(float(told.get("LOADS", 0)))  # a checkpoint
rank, others = int(told["RANK"]), range(int(told["WORLD_SIZE"]) if told.get("MEETS") else 0)
marks = [pathlib.Path("..", f"at.{other}") for other in others]
for n in range(int(told.get("BEGIN", 0)), int(told["STEPS"])):
    with run.step(n):
        with run.phase("generate"):
            time.sleep(float(told["PAUSE"]))
        run.log({"reward": [float(n + r) for r in range(rank + 1)], "loss": float(rank)}, weight=rank + 1)
        if n == int(told.get("DIES_IN", -1)):
            os.kill(os.getpid(), 9)
        if marks:
            marks[rank].write_text(str(n))
        while any(not mark.exists() or int(mark.read_text() or -1) < n for mark in marks):  # as in a collective
            time.sleep(0.01)
    while n == 20 and not os.path.exists("../go"):
        time.sleep(0.02)
print(bool(run.finish(90)), flush=True)
"""


class Cluster:
    """Machines with some ranks each.

    Args:
        directory: Where their directories are.
        heads: The address of the head for the ranks of each machine; an empty one for a machine alone.
        local: Ranks of each machine.
        steps: Steps of each rank; after the twentieth they wait for `go`.
        pause: Seconds of each step.
        deadline: Seconds that a row waits for ranks.
        of_ranks: More of the environment, by rank.
        variables: More of the environment of all.
    """

    def __init__(
        self,
        directory: Path,
        heads: Sequence[str],
        *,
        local: int = 2,
        steps: int = 40,
        pause: float = 0.02,
        deadline: float = 20,
        of_ranks: Mapping[int, Mapping[str, str]] = {},
        **variables: str,
    ) -> None:
        self.directory = directory
        self.steps = steps
        self._local = local
        self.world = range(len(heads) * local)
        self._told: list[dict[str, str]] = []
        ports = [free_port() for _ in heads]
        for rank in self.world:
            place = {
                "RANK": rank,
                "WORLD_SIZE": len(self.world),
                "LOCAL_WORLD_SIZE": local,
                "GROUP_RANK": rank // local,
                "HEAD": heads[rank // local],
                "STEPS": steps,
                "PAUSE": pause,
                "DEADLINE": deadline,
                "OTEL_EXPORTER_PROMETHEUS_PORT": ports[rank // local],
                "OTEL_RL_TOKEN": "a-secret-of-the-tests",
            }
            own = {name: str(value) for name, value in place.items()}
            self._told.append(own | variables | {**of_ranks.get(rank, {})})
        self.ranks = [self._start(rank) for rank in self.world]
        self.dirs = [self._began(rank) for rank in self.world]

    def restart(self, rank: int, **variables: str) -> None:
        """Start a rank again, with more variables."""
        self.ranks[rank] = self._start(rank, **variables)
        self._began(rank)

    def _start(self, rank: int, **variables: str) -> subprocess.Popen[str]:
        node = self.directory / f"node{rank // self._local}"
        node.mkdir(exist_ok=True)
        return start_python(RANK, node, **self._told[rank] | variables)

    def _began(self, rank: int) -> Path:
        """Return the run directory of a rank when it has begun."""
        line = self.ranks[rank].stdout.readline().strip()  # type: ignore[union-attr]
        assert line, self.ranks[rank].communicate()[1]
        return self.directory / f"node{rank // self._local}" / line

    @property
    def rows(self) -> list[Any]:
        """The rows that the head has delivered."""
        return rows_of(self.dirs[0])

    def go(self) -> None:
        """Let the ranks go on after step 20."""
        (self.directory / "go").touch()

    def agent_of(self, node: int) -> int:
        """Return the process id of the agent of a machine."""
        return agent_start.read_status(directories.at(self.dirs[node * self._local])).pid

    def kill_agent(self, node: int) -> None:
        """Kill the agent of a machine; its supervisor starts another one."""
        directory = directories.at(self.dirs[node * self._local])
        killed = agent_start.read_status(directory).pid
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: agent_start.read_status(directory).pid != killed, "the agent is not replaced")

    def finish(self) -> None:
        """Wait until all ranks have ended."""
        for rank, process in enumerate(self.ranks):
            output, errors = process.communicate(timeout=200)
            log = directories.at(self.dirs[rank]).agent_log.read_text()
            assert output.split()[-1:] == ["True"], (rank, errors, log)

    def check(self, first: int = 0) -> None:
        """Each step is there once, on the head alone, with what all ranks of all machines logged, to the last digit.

        If a rank came back in the step `first`, the steps before it are not checked.
        """
        rows = [row for row in self.rows if row["step"] >= first]
        assert len({*self.dirs}) == 1 or rows_of(self.dirs[-1]) == []
        assert [(row["attempt"], row["step"]) for row in rows] == [(0, n) for n in range(first, self.steps)]
        for row in rows:
            pooled = [float(row["step"] + r) for rank in self.world for r in range(rank + 1)]
            assert row["values"]["reward/count"] == len(pooled)
            assert row["values"]["reward/mean"] == statistics.fmean(pooled)
            assert row["values"]["loss"] == sum(rank * (rank + 1) for rank in self.world) / len(pooled)
            assert "missing_ranks" not in row or row["step"] == first > 0


def head() -> str:
    """Return an address for the head."""
    return f"127.0.0.1:{free_port()}"
