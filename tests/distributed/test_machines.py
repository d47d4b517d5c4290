"""Ranks on several machines: directories of their own play them, each with its agent, which talk over loopback."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Event
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.record_events import Lost, from_event, to_event
from otel_rl.recorder.journal.records import AnyRecord, DeviceMemory, Logged, SpanEnded, SpanStarted, Started
from otel_rl.serve.head import remote
from otel_rl.serve.head.remote import RemoteJournal
from tests.collector import wait_for
from tests.distributed.machines import Cluster, head
from tests.processes import items_of, start_python
from tests.real_parts import needs_program

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]


def test_measurements_of_all_machines(tmp_path: Path) -> None:
    """The head's trackers get rows, and measurements on their own axis, with the machine's number in the names."""
    cluster = Cluster(tmp_path, [head()] * 2, HARDWARE="1", OTEL_RL_HARDWARE_INTERVAL="0.5")
    time.sleep(2)
    cluster.go()
    cluster.finish()
    machine = [msgspec.json.decode(line) for line in (cluster.dirs[0] / "machine.jsonl").read_bytes().splitlines()]

    cluster.check()
    assert {name for line in machine for name in line["values"]} >= {"hardware/node.0.mem_gb", "hardware/node.1.mem_gb"}


@needs_program("openssl")
def test_encrypted(tmp_path: Path) -> None:
    """With `https://` in the address, a certificate for the head, and its authority for the others."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", "req", *made, *files], check=True, capture_output=True)
    variables = {"OTEL_RL_TLS_CERTIFICATE": str(cert), "OTEL_RL_TLS_KEY": str(key), "OTEL_RL_TLS_CA": str(cert)}
    cluster = Cluster(tmp_path, [f"https://{head()}"] * 2, **variables)
    cluster.go()
    cluster.finish()

    cluster.check()


def test_encrypted_without_a_certificate(tmp_path: Path) -> None:
    """It fails at the beginning, and says what to set."""
    script = "import otel_rl; otel_rl.init(dir='.', id='run-7', head='https://127.0.0.1:4999')"
    _, errors = start_python(script, tmp_path).communicate(timeout=60)

    assert "set OTEL_RL_TLS_CERTIFICATE and OTEL_RL_TLS_KEY" in errors


def test_the_agent_of_another_machine_dies_and_comes_back(tmp_path: Path) -> None:
    """`finish` brings up another one, which goes on where the first was: nothing is missing, nothing is twice."""
    cluster = Cluster(tmp_path, [head()] * 2)
    wait_for(lambda: len(cluster.rows) >= 10, "no rows", 90)
    cluster.kill_agent(1)
    cluster.go()
    cluster.finish()

    cluster.check()


def test_the_head_dies_and_comes_back(tmp_path: Path) -> None:
    """Meanwhile what the others record waits on their disks."""
    cluster = Cluster(tmp_path, [head()] * 2)
    wait_for(lambda: len(cluster.rows) >= 10, "no rows", 90)
    time.sleep(0.5)  # for the cursor: between a row and its cursor it may be delivered twice
    cluster.kill_agent(0)
    cluster.go()
    cluster.finish()

    cluster.check()


def test_a_rank_of_another_machine_dies(tmp_path: Path) -> None:
    """The head hears it from that machine's agent: an event names the rank, rows go on without it."""
    cluster = Cluster(tmp_path, [head()] * 2)
    wait_for(lambda: len(cluster.rows) >= 10, "no rows", 90)
    cluster.ranks[3].kill()
    cluster.go()
    for rank in range(3):
        assert cluster.ranks[rank].communicate(timeout=200)[0].split()[-1:] == ["True"]
    lost = [item for item in items_of(cluster.dirs[0]) if isinstance(item, Event) and item.name == "rl.process.lost"]

    assert [event.rank for event in lost] == [3]
    assert [row["step"] for row in cluster.rows] == list(range(cluster.steps))
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
    st.integers(0, 2**62 - 1),
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
    with pytest.raises(ValueError, match="not a journal record"):
        from_event("rl.journal.logged", None)
    with pytest.raises(ValueError, match="not a journal record"):
        from_event("rl.journal.poem", {})
    with pytest.raises(ValueError, match="logged"):
        from_event("rl.journal.logged", {"step": "three"})


def test_records_that_overtake_each_other(tmp_path: Path) -> None:
    """Those that come too early are kept until those before them are there, also by the next agent; twice is once."""
    path = tmp_path / "rank0.attempt0@node1"
    journal = RemoteJournal(path, 1 << 20)
    for index in (2, 0, 4, 2, 0, 5):
        journal.receive(index, Logged(index, index, {}), 0.0)
    before = recorded(path)
    following = RemoteJournal(path, 1 << 20)
    for index in (3, 1, 1, 4):
        following.receive(index, Logged(index, index, {}), 2.0)

    assert before == [0]
    assert recorded(path) == [0, 1, 2, 3, 4, 5]
    assert following.lost == 0
    assert following.is_complete
    assert [entry.name for entry in path.iterdir() if entry.is_dir()] == []


def test_too_many_records_that_overtake_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records for which there is no room are refused, so that the sender retries."""
    monkeypatch.setattr(remote, "_MOST_EARLY_BYTES", 20)
    journal = RemoteJournal(tmp_path / "rank0.attempt0@node1", 1 << 20)
    journal.receive(1, Logged(1, 1, {}), 0.0)
    with pytest.raises(OSError, match="record 2 arrived, but record 0 has not"):
        journal.receive(2, Logged(2, 2, {"loss": 1.0, "reward": 2.0}), 0.0)
    for index in (0, 2):
        journal.receive(index, Logged(index, index, {}), 0.0)

    assert recorded(tmp_path / "rank0.attempt0@node1") == [0, 1, 2]


def test_records_that_a_collector_lost(tmp_path: Path) -> None:
    """After a minute it goes on with the first of those that come; what is missing is counted."""
    journal = RemoteJournal(tmp_path / "rank0.attempt0@node1", 1 << 20)
    journal.receive(0, Logged(0, 0, {}), 0.0)
    journal.receive(9, Logged(9, 9, {}), 1.0)
    journal.receive(4, Logged(4, 4, {}), 50.0)
    settled = [journal.give_up_late(now) for now in (61.0, 62.0, 121.0, 123.0)]

    assert settled == [False, True, False, True]
    assert recorded(tmp_path / "rank0.attempt0@node1") == [0, 4, 9]
    assert journal.lost == 3 + 4


def recorded(path: Path) -> list[int]:
    """Return the steps in a journal."""
    reader = Reader(path, AnyRecord)
    return [record.step for record in reader.read(final=True) if isinstance(record, Logged)]
