"""All servers at once: a training on two machines, its traces, its metrics, and the alert when one of them dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from otel_rl.demo.options import Options
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.serve.servers import PORTS
from tests.collector import free_port, wait_for
from tests.processes import rows_of, start
from tests.prometheus import Prometheus
from tests.real_parts import needs, needs_program
from tests.servers.running import A_WHILE, Collector, Webhook, send_alerts_to, stack, steps_of, trace

pytestmark = [
    needs("torch"),
    *map(needs_program, ("otelcol", "jaeger", "prometheus", "alertmanager")),
    pytest.mark.timeout(900),
    pytest.mark.slow,
]
OPTIONS = Options(steps=100_000, ranks=2, exporters=("jsonl",), prompts=16, warmup_updates=10, checkpoint_every=200_000)
ROWS = 10


@contextlib.contextmanager
def demo(directory: Path, heads: Sequence[str], **environment: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Run a rank of the demo on each of two machines; Prometheus sees the targets of the head."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = []
    for rank, head in enumerate(heads):
        node = directory / f"node{rank}"
        (node / "runs").mkdir(parents=True)
        if rank == 0:  # the head has the metrics of the whole run
            targets = directory / "runs" / ".stack" / "targets"
            targets.unlink()
            targets.symlink_to(node / "runs" / ".targets")
        place = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": len(heads), "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank}
        place |= {"OTEL_RL_RUN_ID": "chain", "OTEL_RL_HEAD": head, "OTEL_RL_IDLE_TIMEOUT": 5}
        place |= {"OTEL_EXPORTER_PROMETHEUS_PORT": free_port(), "OTEL_RL_ROWS_DEADLINE": 120}
        told = {name: str(value) for name, value in place.items()} | rendezvous | environment
        command = [sys.executable, "-m", "otel_rl.demo.processes", msgspec.json.encode(OPTIONS).decode()]
        ranks.append(start(command, node, stdin=subprocess.PIPE, **told))  # a rank ends when nobody watches it
    try:
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        wait_for(lambda: not any(map(alive, agents(directory))), "an agent goes on", A_WHILE)


def agents(directory: Path) -> list[int]:
    """Return the processes that are the agents of the machines."""
    places = [path.parent for path in directory.glob("node*/runs/*/*/run.json")]
    return [agent_start.read_status(directories.at(place)).pid for place in places]


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    return pid > 0 and Path(f"/proc/{pid}").exists()


def test_the_whole_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, the trace of a step that panels link to, metrics, and one message when a rank dies."""
    monkeypatch.setenv("OTEL_RL_TOKEN", "a-secret-of-the-tests")
    head = free_port()
    to_head = {"OTEL_RL_HEAD_URL": f"http://127.0.0.1:{head}", "OTEL_RL_TOKEN": "a-secret-of-the-tests"}
    with Webhook() as webhook, stack(monkeypatch), Collector("node", tmp_path, **to_head) as node:
        send_alerts_to(webhook.url)
        prometheus = Prometheus(f"http://127.0.0.1:{PORTS['prometheus']}")
        traces = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{PORTS['otlp_http']}/v1/traces"}
        heads = [f"127.0.0.1:{head}", f"127.0.0.1:{node.port}"]
        with demo(tmp_path, heads, OTEL_RL_TOKEN="a-secret-of-the-tests", **traces) as ranks:
            wait_for(lambda: len(rows(tmp_path)) >= ROWS, "no rows come", 2 * A_WHILE)
            wait_for(lambda: prometheus.value("count(rl_run_info)"), "the run is not scraped", A_WHILE)
            both = "count(rl_processes_lost_total)"
            wait_for(lambda: prometheus.value(both) == 2, "ranks are not scraped", A_WHILE)
            wait_for(lambda: any("rl.loop" in trace(one) for one in steps_of("chain")), "no trace of a step", A_WHILE)
            os.kill(ranks[0].pid, signal.SIGSTOP)  # else it ends with an error as soon as the other is dead
            ranks[1].kill()
            wait_for(webhook.alerts, "no alert comes", 2 * A_WHILE)
            os.kill(ranks[0].pid, signal.SIGCONT)
        steps = [row["step"] for row in rows(tmp_path)]

    (message,) = webhook.messages
    assert [(one["alertname"], one["rl_run_id"], one["rl_rank"]) for one in webhook.alerts()] == [
        ("RLRankLost", "chain", "1")
    ]
    assert message["groupLabels"] == {"rl_run_id": "chain"}
    assert steps[:ROWS] == list(range(ROWS))
    assert len(steps) == len(set(steps))


def rows(directory: Path) -> list[dict[str, object]]:
    """Return the rows of the head."""
    found = list(directory.glob("node0/runs/*/*/rows.jsonl"))
    return rows_of(found[0].parent) if found else []
