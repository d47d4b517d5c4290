"""Two machines, of which one sends to the other, and a job that ends before everything is delivered."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.collector import free_port, wait_for
from tests.faults.test_undelivered import _TRAIN, STEPS, ended, gated, plain  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.nodes import Nodes

pytestmark = pytest.mark.slow
_OPEN = {"OTEL_RL_TOKEN": "secret", "OTEL_RL_INSECURE": "true"}
"""Settings that an address of another machine needs."""


def train(nodes: Nodes, head: str) -> Path:
    """Train on two machines, until both agents have ended; the exporter has taken nothing."""
    started = [
        nodes.start(f"node{n + 1}", _TRAIN, HEAD=address, N=str(n), GROUP_RANK=str(n), **_OPEN)
        for n, address in enumerate((head, "192.0.2.1:4320"))  # which no machine answers
    ]
    for process in started:
        output, errors = process.communicate(timeout=100)
        assert process.returncode == 0, output + errors
    return nodes.shared / "runs" / "p" / "r"


def test_two_machines_that_are_gone(plain: Nodes) -> None:  # noqa: F811 - a fixture
    """A third one, which can listen on no address of the run, delivers the rows of both, once."""
    run_dir = train(plain, f"127.0.0.1:{free_port()}")
    names = sorted(path.name for path in (run_dir / "local").iterdir())
    wait_for(lambda: all(ended(run_dir, name) for name in names), "no copies")
    for host in ("node1", "node2"):
        shutil.rmtree(plain.disk_of(host))
    (run_dir / "open").touch()
    said = plain.once("node3", run_dir)

    assert names == ["node1", "node2.sender"]
    assert said == (0, "")
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]
    assert not (run_dir / "partial.txt").exists()
