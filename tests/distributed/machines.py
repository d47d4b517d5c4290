"""Machines of a cluster, played by directories of their own: each has its agent, and they talk over loopback."""

from __future__ import annotations

import os
import signal
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
from tests.collector import free_port, wait_for
from tests.processes import rows_of, start_python

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

_RANK = """
import os, time, otel_rl
told = os.environ
place = dict(dir=".", project="p", id="run-7", head=told["HEAD"], rows={"deadline": float(told["DEADLINE"])})
run = otel_rl.init(**place, quiet=True, hardware=bool(told.get("HARDWARE")))
print(run.dir, flush=True)
rank = int(told["RANK"])
for n in range(int(told["STEPS"])):
    with run.step(n), run.phase("generate"):
        time.sleep(float(told["PAUSE"]))
    run.log({"reward": [float(n + r) for r in range(rank + 1)], "loss": float(rank)}, weight=rank + 1, step=n)
    while n == 20 and not os.path.exists("../go"):
        time.sleep(0.02)
print(run.finish(90), flush=True)
"""


class Cluster:
    """Machines with some ranks each.

    Args:
        directory: Where their directories are.
        heads: The address of the head for the ranks of each machine.
        local: Ranks of each machine.
        steps: Steps of each rank; after the twentieth they wait for `go`.
        pause: Seconds of each step.
        deadline: Seconds that a row waits for ranks.
        variables: More of the environment.
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
        **variables: str,
    ) -> None:
        self.directory = directory
        self.steps = steps
        self._local = local
        self.world = range(len(heads) * local)
        self.ranks: list[subprocess.Popen[str]] = []
        for rank in self.world:
            node = directory / f"node{rank // local}"
            node.mkdir(exist_ok=True)
            place = {
                "RANK": rank,
                "WORLD_SIZE": len(self.world),
                "LOCAL_WORLD_SIZE": local,
                "GROUP_RANK": rank // local,
                "HEAD": heads[rank // local],
                "STEPS": steps,
                "PAUSE": pause,
                "DEADLINE": deadline,
                "OTEL_EXPORTER_PROMETHEUS_PORT": free_port(),
                "OTEL_RL_TOKEN": "secret",
            }
            told = {name: str(value) for name, value in place.items()} | variables
            self.ranks.append(start_python(_RANK, node, **told))
        self.dirs = [Path(directory / f"node{n // local}", self._told(n)) for n in self.world]

    def _told(self, rank: int) -> str:
        line = self.ranks[rank].stdout.readline().strip()  # type: ignore[union-attr]
        assert line, self.ranks[rank].communicate()[1]
        return line

    @property
    def rows(self) -> list[Any]:
        """The rows that the head has delivered."""
        return rows_of(self.dirs[0])

    def go(self) -> None:
        """Let the ranks go on after step 20."""
        (self.directory / "go").touch()

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

    def check(self) -> None:
        """Each step is there once, on the head alone, with what all ranks of all machines logged, to the last digit."""
        rows = self.rows
        assert rows_of(self.dirs[-1]) == []
        steps = [row["step"] for row in rows]
        assert steps == list(range(self.steps)), steps
        for row in rows:
            pooled = [float(row["step"] + r) for rank in self.world for r in range(rank + 1)]
            assert row["values"]["reward/count"] == len(pooled)
            assert row["values"]["reward/mean"] == statistics.fmean(pooled)
            assert row["values"]["loss"] == sum(rank * (rank + 1) for rank in self.world) / len(pooled)
            assert "missing_ranks" not in row


def head() -> str:
    """Return an address for the head."""
    return f"127.0.0.1:{free_port()}"
