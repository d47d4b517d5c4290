"""Ranks on several machines: directories of their own play them, each with its agent, which talk over loopback."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl import launch
from otel_rl.directory import RunDirectory
from otel_rl.export import Event
from otel_rl.record_events import Lost, from_event, to_event
from otel_rl.records import DeviceMemory, Logged, SpanEnded, SpanStarted, Started
from tests.collector import free_port, wait_for
from tests.processes import items_of, rows_of, start_python
from tests.real_parts import needs_program

pytestmark = pytest.mark.timeout(240)
NODES, LOCAL, STEPS = 2, 2, 40
_RANK = """
import os, time, otel_rl
place = dict(dir=".", project="p", id="run-7", head=os.environ["HEAD"])
run = otel_rl.init(**place, quiet=True, hardware=bool(os.environ.get("HARDWARE")), row_deadline=20)
print(run.dir, flush=True)
rank = run._session.settings.rank
for n in range(int(os.environ["STEPS"])):
    with run.step(n), run.phase("generate"):
        time.sleep(0.02)
    run.log({"reward": [float(n + r) for r in range(rank + 1)], "loss": float(rank)}, weight=rank + 1, step=n)
    while n == 20 and not os.path.exists("../go"):
        time.sleep(0.02)
print(run.finish(90), flush=True)
"""


class Cluster:
    """Two machines of two ranks."""

    def __init__(self, directory: Path, scheme: str = "", **variables: str) -> None:
        self.directory = directory
        head = f"{scheme}127.0.0.1:{free_port()}"
        self.ranks: list[subprocess.Popen[str]] = []
        for rank in range(NODES * LOCAL):
            node = directory / f"node{rank // LOCAL}"
            node.mkdir(exist_ok=True)
            place = {"RANK": rank, "WORLD_SIZE": NODES * LOCAL, "LOCAL_WORLD_SIZE": LOCAL, "GROUP_RANK": rank // LOCAL}
            environment = {name: str(value) for name, value in place.items()}
            ports = {"OTEL_EXPORTER_PROMETHEUS_PORT": str(free_port()), "OTEL_RL_TOKEN": "secret"}
            self.ranks.append(
                start_python(_RANK, node, HEAD=head, STEPS=str(STEPS), **environment, **ports, **variables)
            )
        self.dirs = [Path(directory / f"node{n // LOCAL}", self._told(n)) for n in range(NODES * LOCAL)]

    def _told(self, rank: int) -> str:
        line = self.ranks[rank].stdout.readline().strip()  # type: ignore[union-attr]
        assert line, self.ranks[rank].communicate()[1]
        return line

    @property
    def rows(self) -> list[Any]:
        """What the head has delivered."""
        return rows_of(self.dirs[0])

    def go(self) -> None:
        """Let the ranks go on after step 20."""
        (self.directory / "go").touch()

    def kill_agent(self, node: int) -> None:
        """Kill the agent of a machine."""
        directory = RunDirectory(self.dirs[node * LOCAL])
        os.kill(launch.read_status(directory).pid, signal.SIGKILL)
        wait_for(lambda: not launch.agent_is_alive(directory), "the agent does not die")

    def finish(self) -> None:
        """Wait until all ranks have ended."""
        for rank, process in enumerate(self.ranks):
            output, errors = process.communicate(timeout=200)
            log = (self.dirs[rank] / "agent.log").read_text()
            assert output.split()[-1:] == ["True"], (rank, errors, log)


def check(rows: list[Any]) -> None:
    """Each step is there once, with what all ranks of both machines logged, to the last digit."""
    assert [row["step"] for row in rows] == list(range(STEPS))
    world = range(NODES * LOCAL)
    for row in rows:
        pooled = [float(row["step"] + r) for rank in world for r in range(rank + 1)]
        assert row["values"]["reward/count"] == len(pooled)
        assert row["values"]["reward/mean"] == statistics.fmean(pooled)
        assert row["values"]["loss"] == sum(rank * (rank + 1) for rank in world) / len(pooled)
        assert "missing_ranks" not in row


def test_rows_of_all_machines(tmp_path: Path) -> None:
    """The agent of rank 0 alone writes rows; the others send it what their ranks record."""
    cluster = Cluster(tmp_path)
    cluster.go()
    cluster.finish()

    check(cluster.rows)
    assert rows_of(cluster.dirs[-1]) == []


def test_measurements_of_all_machines(tmp_path: Path) -> None:
    """The head's trackers get them, on their own axis, with the number of the machine in the names."""
    cluster = Cluster(tmp_path, HARDWARE="1", OTEL_RL_COLLECTION_INTERVAL="0.5")
    time.sleep(2)
    cluster.go()
    cluster.finish()
    machine = [msgspec.json.decode(line) for line in (cluster.dirs[0] / "machine.jsonl").read_bytes().splitlines()]

    assert {name for line in machine for name in line["values"]} >= {"ray/node.0.mem_gb", "ray/node.1.mem_gb"}


@needs_program("openssl")
def test_encrypted(tmp_path: Path) -> None:
    """With `https://` in the address, a certificate for the head, and its authority for the others."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", "req", *made, *files], check=True, capture_output=True)
    variables = {"OTEL_RL_TLS_CERTIFICATE": str(cert), "OTEL_RL_TLS_KEY": str(key), "OTEL_RL_TLS_CA": str(cert)}
    cluster = Cluster(tmp_path, "https://", **variables)
    cluster.go()
    cluster.finish()

    check(cluster.rows)


def test_encrypted_without_a_certificate(tmp_path: Path) -> None:
    """It fails at the beginning, and says what to set."""
    script = "import otel_rl; otel_rl.init(dir='.', id='run-7', head='https://127.0.0.1:4999')"
    _, errors = start_python(script, tmp_path).communicate(timeout=60)

    assert "set OTEL_RL_TLS_CERTIFICATE and OTEL_RL_TLS_KEY" in errors


def test_the_agent_of_another_machine_dies_and_comes_back(tmp_path: Path) -> None:
    """`finish` brings up another one, which goes on where the first was: nothing is missing, nothing is twice."""
    cluster = Cluster(tmp_path)
    wait_for(lambda: len(cluster.rows) >= 10, "no rows", 90)
    cluster.kill_agent(1)
    cluster.go()
    cluster.finish()

    check(cluster.rows)


def test_the_head_dies_and_comes_back(tmp_path: Path) -> None:
    """Meanwhile what the others record waits on their disks."""
    cluster = Cluster(tmp_path)
    wait_for(lambda: len(cluster.rows) >= 10, "no rows", 90)
    time.sleep(0.5)  # for the cursor: between a row and its cursor it may be delivered twice
    cluster.kill_agent(0)
    cluster.go()
    cluster.finish()

    check(cluster.rows)


def test_a_rank_of_another_machine_dies(tmp_path: Path) -> None:
    """The head hears it from that machine's agent: an event names the rank, rows go on without it."""
    cluster = Cluster(tmp_path)
    wait_for(lambda: len(cluster.rows) >= 10, "no rows", 90)
    cluster.ranks[3].kill()
    cluster.go()
    for rank in range(3):
        assert cluster.ranks[rank].communicate(timeout=200)[0].split()[-1:] == ["True"]
    lost = [item for item in items_of(cluster.dirs[0]) if isinstance(item, Event) and item.name == "rl.process.lost"]

    assert [event.rank for event in lost] == [3]
    assert [row["step"] for row in cluster.rows] == list(range(STEPS))
    assert cluster.rows[-1]["missing_ranks"] == [3]
    assert cluster.rows[-1]["values"]["loss"] == sum(rank * (rank + 1) for rank in range(3)) / 6


def test_a_record_is_the_same_on_the_other_side() -> None:
    """Ids of 64 bits, bytes, nested facts, what is absent."""
    memory = [DeviceMemory(0, 1, 2, 3, 4, used=5)]
    for record in (
        Started("run", 0, 3, 4, 2, "", 7, "host", 4096, 1, "0,1"),
        SpanStarted(2**64 - 1, 5, b"t" * 16, None, "generate", 9, b"1 2", None, memory, "onload"),
        SpanEnded(3, 9, b"", {"tokens": 5}, ("E", "x"), [("m", 1, {"a": 1})], [(b"t" * 16, 2**63)], None, memory, True),
        Lost(5),
    ):
        assert from_event(*to_event(record)) == record


@given(
    st.dictionaries(st.text(max_size=8), st.floats(allow_nan=False) | st.integers(-(2**63), 2**64 - 1), max_size=5),
    st.integers(0, 2**62),
)
def test_values_are_the_same_on_the_other_side(values: dict[str, float], step: int) -> None:
    """Whatever is logged, integers as integers."""
    record = from_event(*to_event(Logged(step, 1, values)))

    assert isinstance(record, Logged)
    assert record.values == values
    assert {name: type(value) for name, value in record.values.items()} == {n: type(v) for n, v in values.items()}


def test_a_metric_may_be_called_as_it_likes() -> None:
    """Also as what large integers travel under."""
    record = Logged(0, 1, {"uint64": 0.5})

    assert from_event(*to_event(record)) == record


def test_what_is_no_record_is_refused() -> None:
    """By its name, or by its fields."""
    with pytest.raises(ValueError, match="no record"):
        from_event("rl.journal.logged", None)
    with pytest.raises(ValueError, match="no record"):
        from_event("rl.journal.poem", {})
    with pytest.raises(ValueError, match="logged"):
        from_event("rl.journal.logged", {"step": "three"})
