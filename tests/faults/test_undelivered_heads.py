"""Two machines, of which one sends to the other, and a job that ends before everything is delivered."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.collector import free_port, wait_for
from tests.faults.nodes import Nodes
from tests.faults.test_undelivered import _TRAIN, STEPS, ended, gated, plain  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow
_OPEN = {"OTEL_RL_TOKEN": "a-secret-of-the-tests", "OTEL_RL_INSECURE": "true"}
"""Settings that an address of another machine needs."""


def train(nodes: Nodes, heads: tuple[str, str]) -> Path:
    """Train on two machines, each with the address of the head, until both agents have ended; nothing is delivered."""
    started = [
        nodes.start(f"node{n + 1}", _TRAIN, HEAD=head, N=str(n), GROUP_RANK=str(n), FINISH="3", **_OPEN)
        for n, head in enumerate(heads)
    ]
    for process in started:
        output, errors = process.communicate(timeout=100)
        assert process.returncode == 0, output + errors
    return nodes.shared / "runs" / "p" / "r"


def test_two_machines_that_are_gone(plain: Nodes) -> None:  # noqa: F811 - a fixture
    """A third one, which can listen on no address of the run, delivers the rows of both, once."""
    head = f"127.0.0.1:{free_port()}"
    run_dir = train(plain, (head, head))
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived", 60)
    wait_for((run_dir / "agent.node2.sender.log").exists, "the other agent has no log")
    for host in ("node1", "node2"):
        shutil.rmtree(plain.disk_of(host))
    (run_dir / "open").touch()
    said = plain.once("node3", run_dir)

    assert said == (0, "")
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]
    assert not (run_dir / "partial.txt").exists()


def test_a_machine_that_has_not_reached_the_head(plain: Nodes) -> None:  # noqa: F811 - a fixture
    """Steps that wait for it are not archived: they come from the head's machine, with what the other one has left."""
    run_dir = train(plain, (f"127.0.0.1:{free_port()}", "192.0.2.1:4320"))  # which no machine answers
    wait_for((run_dir / "unsent" / "node2.sender" / "index.json").exists, "nothing is left for the head", 100)
    shutil.rmtree(plain.disk_of("node2"))
    (run_dir / "open").touch()
    code, said = plain.once("node3", run_dir)
    before = gated(run_dir)

    assert code == 1
    assert "what node1 recorded after it saved its archive last is in" in said
    assert "records of node2 wait for its head; run this on the machine of the head" in said
    assert before == []
    assert [plain.once("node1", run_dir) for _ in range(2)] == [(0, "")] * 2
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]
    assert not (run_dir / "partial.txt").exists()
