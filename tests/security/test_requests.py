"""Requests of a stranger who reaches a head: what they cost it, and that its own rows go on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_rl.recorder.journal.records import Logged
from otel_rl.recorder.otlp.answers import JSON, PROTOBUF, Refusal
from otel_rl.recorder.settings.tokens import Tokens
from otel_rl.serve.bridge import bodies, disk
from otel_rl.serve.head import receiver as receiver_module
from otel_rl.serve.head.receiver import HeadReceiver
from tests.security.strangers import Victim, at_once
from tests.serve.bridge.bridges import ask, journal_records, pairs, step_metrics

pytestmark = pytest.mark.timeout(300)
_MOST_MIB = 256
_PEER = "192.0.2.1"


def attributes(number: int) -> bytes:
    """Return a request with a record that has so many attributes."""
    one = step_metrics("victim", {0: {"loss": 1.0}})
    record = one.resource_logs[0].scope_logs[0].log_records[0]
    record.attributes.extend(pairs({f"k{n}": n for n in range(number)}))
    return one.SerializeToString()


def attributes_in_json(number: int) -> bytes:
    named = [{"key": f"k{n}", "value": {"intValue": n}} for n in range(number)]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": named}]}]}]}).encode()


BOMBS: tuple[tuple[Callable[[], bytes], str, str, int], ...] = (
    (lambda: gzip.compress(bytes(4 * bodies.LARGEST)), PROTOBUF, "gzip", 413),
    (lambda: gzip.compress(attributes(20_000)), PROTOBUF, "gzip", 200),
    (lambda: gzip.compress(b"\x0a\x00" * (1 << 17)), PROTOBUF, "gzip", 200),  # empty messages of two bytes
    (lambda: attributes_in_json(5_000), JSON, "", 200),
    (lambda: b'{"a":[' + b"[]," * 500_000 + b"[]]}", JSON, "", 200),
    (lambda: b'{"a":[' + b"{}," * 1_000_000 + b"{}]}", JSON, "", 413),
    (lambda: b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", JSON, "", 400),
    (lambda: b'{"a":' + b"[" * 2_000_000 + b"]" * 2_000_000 + b"}", JSON, "", 413),
    (lambda: gzip.compress(b"\x0a\x00" * (1 << 20)), PROTOBUF, "gzip", 413),
    (lambda: bytes(bodies.LARGEST + 1), PROTOBUF, "", 413),
)


@pytest.mark.slow
def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that are small as sent, or made of tiny parts, four at a time: memory has a limit, and own rows go on."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    victim = Victim(tmp_path)
    before = victim.memory
    for make, kind, encoding, expected in BOMBS:
        body = make()
        headers = {"Content_Type": kind, "Content_Encoding": encoding}
        answers = at_once(4, lambda _, body=body, given=headers: ask(victim.port, body, **given))
        victim.pace()

        assert {answer.status for answer, _ in answers} == {expected}
    assert victim.memory - before < _MOST_MIB
    assert victim.is_unharmed()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[HeadReceiver]:
    """Return the head of the run `victim`, whose outbox may have 1 MiB."""
    for name in ("journals", "outbox"):
        (tmp_path / name).mkdir()
    receiver = HeadReceiver("127.0.0.1:0", "victim", tmp_path / "journals", tmp_path / "outbox", 1 << 20, Tokens())
    yield receiver
    receiver.close()


def record(journal: str, index: int = 0) -> ExportLogsServiceRequest:
    """Return a request with one record of a process of another machine."""
    return journal_records("victim", "stranger", journal, [Logged(time=1, step=0, values={"x": 1.0})], index)


def test_names_of_journals(receiver: HeadReceiver) -> None:
    """Processes that do not exist have a journal each, but few open files."""
    before = len([*Path("/proc/self/fd").iterdir()])
    for n in range(200):
        receiver.handle("logs", record(f"rank{n}.attempt0.1"), _PEER)

    assert len(receiver.pop_grown()) == 200
    assert len([*Path("/proc/self/fd").iterdir()]) < before + 100


def test_more_journals_than_a_head_may_have(receiver: HeadReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the answer is 429, and those that are known go on."""
    monkeypatch.setattr(receiver_module, "_MOST_JOURNALS", 5)
    for n in range(5):
        receiver.handle("logs", record(f"rank{n}.attempt0.1"), _PEER)
    with pytest.raises(Refusal, match="5 processes of other machines") as caught:
        receiver.handle("logs", record("rank5.attempt0.1"), _PEER)
    receiver.handle("logs", record("rank0.attempt0.1", 1), _PEER)

    assert (caught.value.kind.http, caught.value.headers["Retry-After"]) == (429, "5")


def test_spans_leave_room_for_rows(receiver: HeadReceiver, tmp_path: Path) -> None:
    """While half of the outbox waits for an exporter that is stuck, spans get 429, and records are accepted."""
    (tmp_path / "outbox" / "segment").write_bytes(bytes(600_000))
    spans = ExportTraceServiceRequest()
    ids = {"trace_id": bytes(15) + b"1", "span_id": bytes(7) + b"1"}
    spans.resource_spans.add().scope_spans.add().spans.add(name="x", start_time_unix_nano=1, **ids)
    with pytest.raises(Refusal, match="not been delivered") as caught:
        receiver.handle("traces", spans, _PEER)

    assert caught.value.kind.http == 429
    assert not receiver.handle("logs", record("rank0.attempt0.1"), _PEER).partial_success.rejected_log_records


def test_a_disk_that_is_nearly_full(receiver: HeadReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are to come later, before the rows of this machine lack space."""
    monkeypatch.setattr(disk, "_SMALL", 1)
    monkeypatch.setattr(disk, "KEPT_FREE", 1 << 60)
    with pytest.raises(Refusal, match="nearly full") as caught:
        receiver.handle("logs", record("rank0.attempt0.1"), _PEER)

    assert caught.value.kind.http == 503
