"""Eight machines of a run, simulated on one host, with a Collector between seven of their agents and the head."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks import simulated_ranks
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import free_port, wait_for
from tests.distributed.link import Link
from tests.servers.running import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINES, LOCAL = 8, 8
PERIOD_S = 1.0
"""Seconds of a step."""
_PATIENCE_S = 120.0

TOKEN = "a-secret-of-the-tests"


class Cluster:
    """The machines: the head on the first, one Collector for the others.

    Args:
        directory: Where the machines' directories are.
        steps: Steps of each rank.
        limit_mib: The `limit_mib` of the Collector, that of its file if it is 0.

    Attributes:
        link: The link from the Collector to the head.
        collector: The Collector.
        directory: As given.
        pages: The ports of the agents' metrics endpoints.
        runs: The run's directory on each machine, after `start`.
    """

    def __init__(self, directory: Path, steps: int, limit_mib: int = 0) -> None:
        self.directory, self._steps, self._head = directory, steps, free_port()
        self.link = Link(self._head)
        limit = {"processors.memory_limiter.limit_mib": str(limit_mib)} if limit_mib else {}
        limit |= {"processors.memory_limiter.spike_limit_mib": str(limit_mib // 5)} if limit_mib else {}
        place = {"OTEL_RL_HEAD_URL": f"http://127.0.0.1:{self.link.port}", "OTEL_RL_TOKEN": TOKEN}
        self.collector = Collector("node", directory, limit, **place)
        self.pages = [free_port() for _ in range(MACHINES)]
        self._machines: list[subprocess.Popen[bytes]] = []
        self.runs: list[directories.RunDirectory] = []

    def start(self) -> None:
        """Start the Collector and the ranks, and wait until all have begun."""
        self.collector.start()
        for n in range(MACHINES):
            address = f"127.0.0.1:{self.collector.port if n else self._head}"
            place = self.directory / f"node{n}"
            arguments = [place, n * LOCAL, LOCAL, MACHINES * LOCAL, address, self._steps, PERIOD_S]
            variables = {"OTEL_RL_TOKEN": TOKEN, "OTEL_EXPORTER_PROMETHEUS_PORT": str(self.pages[n])}
            command = [sys.executable, "-m", "benchmarks.simulated_ranks", *map(str, arguments)]
            self._machines.append(subprocess.Popen(command, env=os.environ | variables))
        runs = [self.directory / f"node{n}" / simulated_ranks.PROJECT / simulated_ranks.ID for n in range(MACHINES)]
        wait_for(lambda: all(map(_has_begun, runs)), "the agents do not begin", _PATIENCE_S)
        self.runs = [directories.here(run)[0] for run in runs]
        (self.directory / "go").touch()

    def rows(self) -> list[bytes]:
        """Return the rows that the head has delivered, encoded."""
        path = self.runs[0].path / "rows.jsonl"
        return path.read_bytes().splitlines() if path.exists() else []

    def has_ended(self) -> bool:
        """Tell whether all ranks have ended."""
        return all(machine.poll() is not None for machine in self._machines)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self._machines:
            machine.terminate()
            machine.wait(60)
        for run in self.runs:
            if pid := agent_start.read_status(run).pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        self.collector.stop()


@contextlib.contextmanager
def cluster(steps: int, limit_mib: int = 0) -> Iterator[Cluster]:
    """Run the ranks of all machines in a directory of its own."""
    with (
        TemporaryDirectory(prefix="otel-rl-cluster-", ignore_cleanup_errors=True) as place,  # an agent may still end
        Cluster(Path(place), steps, limit_mib) as made,
    ):
        made.start()
        yield made


def _has_begun(run: Path) -> bool:
    """Tell whether an agent runs, and all ranks of the machine are its."""
    return any(run.glob("local/*/agent.json")) and len(list(run.glob("attempts/rank*"))) == LOCAL
