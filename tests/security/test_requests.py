"""Requests of a stranger who reaches the head or the bridge: the figures are in docs/reference/attacks.md."""

from __future__ import annotations

import gzip
import json
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_rl.agent.input import quotas
from otel_rl.agent.input.receiver import Receiver
from otel_rl.journal.record_events import INDEX, JOURNAL, to_event
from otel_rl.journal.records import Logged
from otel_rl.otlp.bridge import bodies, disk
from otel_rl.otlp.bridge.answers import PROTOBUF, Refusal
from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
from otel_rl.setup.tokens import Tokens
from tests.bridge.bridges import Bridge, any_value, pairs, step_metrics
from tests.collector import free_port, wait_for
from tests.security import figures
from tests.security.strangers import JSON, MIB, Process, Used, Victim, ask, at_once, gzipped, idle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(300)
_OUTBOX_MIB = 64
LIMIT_MIB = 2 * 64
"""Twice the limit of a decompressed request."""


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    victim = Victim(tmp_path)
    yield victim
    victim.run.finish(10)


def zstd(pattern: bytes, size: int) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return bytes(zstd.compress(pattern * (size // len(pattern))))


BEGINNING = f"POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\nContent-Length: 9\r\n\r\n".encode()
EMPTY = b"\x0a\x00"  # an empty message of two bytes
BOMBS: dict[str, tuple[Callable[[], bytes], str, dict[str, str], int]] = {
    "gzip, 1 GiB of zeros": (lambda: gzipped(bytes(MIB), 1 << 30), PROTOBUF, {"Content_Encoding": "gzip"}, 413),
    "gzip, 64 MiB of empty messages": (lambda: gzipped(EMPTY, 64 * MIB), PROTOBUF, {"Content_Encoding": "gzip"}, 413),
    "deflate, 1 GiB of zeros": (lambda: zlib.compress(bytes(1 << 30)), PROTOBUF, {"Content_Encoding": "deflate"}, 413),
    "zstd, 1 GiB of zeros": (lambda: zstd(bytes(MIB), 1 << 30), PROTOBUF, {"Content_Encoding": "zstd"}, 413),
    "nested protobuf, 10,000 levels": (lambda: nested(10_000), PROTOBUF, {}, 400),
    "nested JSON, 1,000,000 levels": (lambda: b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", JSON, {}, 400),
    "nested JSON, 900 levels": (lambda: b'{"a":' * 900 + b"1" + b"}" * 900, JSON, {}, 400),
    "JSON, 5,000,000 empty lists": (lambda: b'{"a":[' + b"[]," * 5_000_000 + b"[]]}", JSON, {}, 413),
    "a million attributes": (lambda: attributes(1_000_000), PROTOBUF, {}, 413),
    "a million attributes in JSON": (lambda: attributes_in_json(1_000_000), JSON, {}, 413),
    "gzip, 100,000 attributes": (
        lambda: gzip.compress(attributes(100_000)),
        PROTOBUF,
        {"Content_Encoding": "gzip"},
        200,
    ),
}


def nested(levels: int) -> bytes:
    """Return a request with a value in a value in a value."""
    value = b""
    for _ in range(levels):
        value = b"\x2a" + size(b"\x0a" + size(value))  # an array value in an array of values
    body = b"\x2a" + size(value)
    return b"\x0a" + size(b"\x12" + size(b"\x12" + size(body)))


def size(content: bytes) -> bytes:
    """Return the content with its size before it."""
    number, found = len(content), bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number]) + content


def attributes(number: int) -> bytes:
    one = step_metrics("victim", {0: {"loss": 1.0}})
    record = one.resource_logs[0].scope_logs[0].log_records[0]
    record.attributes.extend(pairs({f"k{n}": n for n in range(number)}))
    return one.SerializeToString()


def attributes_in_json(number: int) -> bytes:
    told = [{"key": f"k{n}", "value": {"intValue": n}} for n in range(number)]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": told}]}]}]}).encode()


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb(name: str, victim: Victim) -> None:
    """It costs at most twice the limit of a body, the answer is final, and rows go on."""
    if "zstd" in name and "zstd" not in bodies.ENCODINGS:
        pytest.skip("needs Python 3.14 or the extra zstd")
    make, kind, headers, expected = BOMBS[name]
    body = make()
    assert len(body) <= bodies.LARGEST_REQUEST or expected == 413
    with victim.watched() as used:
        statuses = at_once(4, lambda _: ask(victim.port, body, kind=kind, **headers)[0])

    figures.note("the head", f"{name} ({len(body) // 1024:,} KiB), 4 at once", f"{expected}", used[0])
    assert set(statuses) <= {expected, 429}
    assert expected in statuses
    assert used[0].memory < 2 * LIMIT_MIB  # two are decoded at the same time
    assert victim.is_unharmed()


def parsed(body: bytes) -> ExportLogsServiceRequest:
    return ExportLogsServiceRequest.FromString(body)


def record(journal: str, index: int = 0, text: str = "x") -> bytes:
    """Return a request with one record of a process of another machine."""
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add()
    of_resource.resource.attributes.extend(pairs({"rl.run.id": "victim", "host.name": "stranger"}))
    name, body = to_event(Logged(time=1, step=0, values={text: 1.0}))
    one = of_resource.scope_logs.add().log_records.add(event_name=name)
    one.body.CopyFrom(any_value(body))
    one.attributes.extend(pairs({JOURNAL: journal, INDEX: index}))
    return request.SerializeToString()


def test_names_of_journals(victim: Victim) -> None:
    """600 processes that do not exist are recorded, and cost little each."""
    with victim.watched() as used:
        statuses = {ask(victim.port, record(f"rank{n}.attempt0.1"))[0] for n in range(600)}

    figures.note("the head", "records of 600 processes", "200", used[0])
    assert statuses == {200}
    assert used[0].disk < 600 * 0.1
    assert used[0].descriptors < 500
    assert victim.is_unharmed()


def test_more_names_than_a_peer_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the answer is 429, and those that are known go on."""
    monkeypatch.setattr(quotas, "MOST_OF_A_PEER", 5)
    receiver = Receiver(f"127.0.0.1:{free_port()}", "victim", tmp_path, tmp_path, 1 << 30, Tokens())
    for n in range(5):
        receiver.take_request("logs", parsed(record(f"rank{n}.attempt0.1")), "192.0.2.1")
    with pytest.raises(Refusal, match=r"processes of 192\.0\.2\.1") as caught:
        receiver.take_request("logs", parsed(record("rank5.attempt0.1")), "192.0.2.1")
    receiver.take_request("logs", parsed(record("rank0.attempt0.1", 1)), "192.0.2.1")
    receiver.take_request("logs", parsed(record("rank5.attempt0.1")), "192.0.2.2")
    receiver.close()

    assert (caught.value.kind.http, caught.value.headers["Retry-After"]) == (429, "5")
    assert len([*tmp_path.glob("*/")]) == 6


def test_a_peer_that_fills_the_disk(tmp_path: Path) -> None:
    """It gets 429 when its journals have the size that one journal may have; others go on."""
    receiver = Receiver(f"127.0.0.1:{free_port()}", "victim", tmp_path, tmp_path, 4 * MIB, Tokens())
    large = "x" * MIB
    kinds = []
    for n in range(20):
        try:
            receiver.take_request("logs", parsed(record(f"rank{n}.attempt0.1", text=large)), "192.0.2.1")
        except Refusal as refusal:
            kinds.append(refusal.kind.http)
    receiver.take_request("logs", parsed(record("other.attempt0.1", text=large)), "192.0.2.2")
    receiver.close()

    assert set(kinds) == {429}
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 6 * MIB


def test_a_peer_that_fills_the_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans get 429 when they take half of the outbox, which an exporter that is stuck keeps; own rows go on."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("OTEL_RL_JOURNAL_LIMIT", str(_OUTBOX_MIB * MIB))
    victim = Victim(tmp_path, exporters=["jsonl", "tests.security.strangers:Stuck"])
    outbox = directories.at(victim.run.dir).outbox
    answers = []
    with victim.watched() as used:
        while not answers or (answers[-1][0] == 200 and len(answers) < 4 * _OUTBOX_MIB):
            answers.append(ask(victim.port, spans(len(answers)), "/v1/traces"))
    for _ in range(3):
        victim.pace()
    size = sum(path.stat().st_size for path in outbox.rglob("*") if path.is_file()) / MIB
    alive = agent_start.read_status(directories.at(victim.run.dir)).pid == victim.agent.pid
    victim.run.finish(0)

    figures.note("the head", f"spans into an outbox of {_OUTBOX_MIB} MiB that is not delivered", "429", used[0])
    assert [answer[:2] for answer in answers[-1:]] == [(429, "5")]
    assert _OUTBOX_MIB / 2 < size < _OUTBOX_MIB
    assert alive


def spans(number: int) -> bytes:
    """Return a request with 16 spans of another program, of 64 KiB each."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(pairs({"service.name": "stranger"}))
    scope = of_resource.scope_spans.add()
    for n in range(16):
        ids = {"trace_id": (number + 1).to_bytes(16, "big"), "span_id": (n + 1).to_bytes(8, "big")}
        span = scope.spans.add(name="x", start_time_unix_nano=1, end_time_unix_nano=2, **ids)
        span.attributes.extend(pairs({f"k{key}": "x" * (8 << 10) for key in range(8)}))
    return request.SerializeToString()


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are to come later, before the rows of this machine lack space."""
    monkeypatch.setattr(disk, "_SMALL", 1)
    monkeypatch.setattr(disk, "KEPT_FREE", 1 << 60)
    receiver = Receiver(f"127.0.0.1:{free_port()}", "victim", tmp_path, tmp_path, 4 * MIB, Tokens())
    with pytest.raises(Refusal, match="nearly full") as caught:
        receiver.take_request("logs", parsed(record("rank0.attempt0.1")), "192.0.2.1")
    receiver.close()

    assert caught.value.kind.http == 503


def test_idle_connections(victim: Victim) -> None:
    """1,000 connections that say nothing, or begin a request: others are served."""
    with victim.watched() as used:
        silent = idle(victim.port, 500) + idle(victim.port, 500, BEGINNING)
        status = ask(victim.port, record("rank7.attempt0.1"))[0]
        wait_for(lambda: victim.agent.look() > 1_000, "not all are accepted")
    for connection in silent:
        connection.close()

    figures.note("the head", "1,000 idle connections", "closed after 60 s", used[0])
    assert status == 200
    assert used[0].descriptors < 1_200
    assert used[0].memory < 64
    assert victim.is_unharmed()


def test_a_stranger_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies without a token, and with a wrong one, are refused before they are kept."""
    monkeypatch.setenv("OTEL_RL_TOKEN", "right")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    victim = Victim(tmp_path)
    body = bytes(8 * MIB)
    with victim.watched() as used:
        statuses = at_once(
            20, lambda n: ask(victim.port, body, **({} if n % 2 else {"Authorization": "Bearer wrong"}))[0]
        )

    figures.note("the head", "20 bodies of 8 MiB without the token", "401", used[0])
    assert set(statuses) == {401}
    assert used[0].memory < 64
    assert victim.is_unharmed()


def test_names_of_runs(tmp_path: Path) -> None:
    """10,000 runs of one client: 32 are taken, the others are to come later, and another client's rows go on."""
    bridge = Bridge(tmp_path / "bridged")
    process = Process(bridge.process.pid)
    bridge.send(step_metrics("mine", {0: {"loss": 1.0}}))
    before = process.peak
    statuses = [bridge.post(step_metrics(f"run{n}", {0: {"loss": 1.0}}).SerializeToString())[0] for n in range(10_000)]
    process.look()
    begun = time.monotonic()
    bridge.send(step_metrics("mine", {1: {"loss": 1.0}}))
    late = time.monotonic() - begun
    grown = process.peak - before
    there = len([*(tmp_path / "bridged").glob("*/*/")])
    space = sum(path.stat().st_blocks * 512 for path in (tmp_path / "bridged").rglob("*") if path.is_file()) / MIB
    bridge.stop()

    used = Used(grown, process.descriptors, space, late)
    figures.note("the bridge", "10,000 names of runs, one after another", "429 after 32", used)
    assert set(statuses) == {200, 429}
    assert there <= 32 * 3  # a minute later, unused ones make room for others
    assert grown < 200


def test_a_bomb_over_grpc(tmp_path: Path) -> None:
    """Decompression stops at the limit: gRPC's own answer is RESOURCE_EXHAUSTED, and the bridge goes on."""
    bridge = Bridge(tmp_path / "bridged")
    process = Process(bridge.process.pid)
    bridge.send(step_metrics("mine", {0: {"loss": 1.0}}))
    before = process.peak
    with grpc.insecure_channel(f"127.0.0.1:{bridge.grpc}", [("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        large = bytes(512 * MIB)
        with pytest.raises(grpc.RpcError) as caught:
            call(large, timeout=60, compression=grpc.Compression.Gzip)
        del large
    begun = time.monotonic()
    bridge.send(step_metrics("mine", {1: {"loss": 1.0}}))
    late, grown = time.monotonic() - begun, process.peak - before
    process.look()
    bridge.stop()

    code = caught.value.code()
    used = Used(grown, process.descriptors, 0, late)
    figures.note("the bridge", "gRPC, gzip, 512 MiB of zeros", code.name, used)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert grown < LIMIT_MIB
