"""The bridge: OTLP from anybody to trackers, exactly per step."""

from __future__ import annotations

import ctypes
import gzip
import json
import math
import signal
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

import otel_rl
from otel_rl.serve.bridge.http import HttpServer
from tests.collector import wait_for
from tests.exporters import wandb_file
from tests.faults.misbehaving import certificates
from tests.fuzz import samples
from tests.processes import rows_of
from tests.real_parts import needs, needs_program
from tests.serve.bridge.bridges import Bridge, pairs, step_metrics
from tests.serve.bridge.test_http import Taken

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """The bridge of all tests that neither end it nor give it options; each has a run of its own."""
    bridge = Bridge(tmp_path_factory.mktemp("bridge") / "bridged")
    yield bridge
    bridge.kill()


def rows(bridge: Bridge, run: str, count: int) -> list[dict[str, Any]]:
    """Return the rows of a run, when there are as many."""
    run_dir = bridge.directory / "p" / run
    wait_for(lambda: len(rows_of(run_dir)) >= count, f"there are no {count} rows of {run}; {bridge.log}")
    return rows_of(run_dir)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_run_arrives_as_it_was(
    protocol: str, bridge: Bridge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's OTLP makes the same rows as its own exporter, NaN and large integers included."""
    port = bridge.http if protocol.startswith("http") else bridge.grpc
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    run = otel_rl.init(dir=tmp_path, project="p", id=f"run-{port}", quiet=True, hardware=False, config={"lr": 0.5})
    for n in range(50):
        with run.step(n), run.phase("generate"):
            pass
        run.log({"loss": math.nan if n == 7 else n / 3, "tokens": 2**53 + n, "eval/acc/mean@4": 0.5})
    assert run.finish(60)
    keys = ("step", "time_unix_nano", "values")

    assert [[row[key] for key in keys] for row in rows(bridge, run.id, 50)] == [
        [row[key] for key in keys] for row in rows_of(run.dir)
    ]


@pytest.mark.slow
def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    """It is on disk before the answer: the next bridge delivers it, once, also if the sender sends it again."""
    bridge = Bridge(tmp_path / "bridged")
    for n in range(200):
        bridge.send(step_metrics("run", {n: {"loss": float(n)}}))
    bridge.kill()
    bridge.restart()
    delivered = {row["step"] for row in rows(bridge, "run", 200)}
    for _ in range(2):
        bridge.send(step_metrics("run", {n: {"loss": float(n)} for n in range(202)}))

    assert delivered == {*range(200)}
    assert sorted(row["step"] for row in rows(bridge, "run", 202)) == list(range(202))
    bridge.kill()


def test_records_that_make_no_sense_are_refused_alone(bridge: Bridge) -> None:
    """Without a run, or with a value that is not a number: the answer says how many, and why."""
    request = step_metrics("some", {0: {"loss": 1.0}, 1: {"loss": "high"}, 2: {"loss": 2.0}})  # type: ignore[dict-item]
    request.MergeFrom(step_metrics(None, {3: {"loss": 1.0}, 4: {"loss": 1.0}}))
    found = bridge.send(request).partial_success

    assert found.rejected_log_records == 3
    assert "value 'loss' must be a number" in found.error_message
    assert "rl.run.id" in found.error_message
    assert [row["step"] for row in rows(bridge, "some", 2)] == [0, 2]


def test_numbers_that_no_archive_can_hold_are_refused_alone(bridge: Bridge) -> None:
    """A step or a time near the end of 64 bits, which would make the rows next to it unreadable."""
    request = step_metrics("far", {step: {"loss": 1.0} for step in (1, 2**63 - 10**18 - 1, 3, 4)})
    records = request.resource_logs[0].scope_logs[0].log_records
    records[2].time_unix_nano = 2**64 - 1
    found = bridge.send(request).partial_success

    assert found.rejected_log_records == 2
    assert "an integer is out of range" in found.error_message
    assert [row["step"] for row in rows(bridge, "far", 2)] == [1, 4]


def test_metrics_belong_to_no_step(bridge: Bridge) -> None:
    """They are refused, all of them, and the answer says what to send."""
    request = samples.metrics()
    request.MergeFrom(request)
    status, body = bridge.post(request.SerializeToString(), "/v1/metrics")
    answer = ExportMetricsServiceResponse.FromString(body)

    assert status == 200
    assert answer.partial_success.rejected_data_points == 2
    assert "rl.step.metrics" in answer.partial_success.error_message


def as_json(steps: Mapping[int, float]) -> bytes:
    """Return what a browser or a shell script sends of steps: OTLP's JSON, with ids in hex."""
    request = json_format.MessageToDict(step_metrics("run", {step: {"loss": loss} for step, loss in steps.items()}))
    for record in request["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        record["traceId"] = "ab" * 16
    return json.dumps(request).encode()


def test_json(bridge: Bridge) -> None:
    """It is answered in JSON too."""
    status, body = bridge.post(as_json({3: 0.5}), Content_Type="application/json")

    assert (status, json.loads(body)) == (200, {})
    assert rows(bridge, "run", 1)[0]["values"] == {"loss": 0.5}


def test_metrics_and_logs_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the collector that the bridge sends to, if it sends to one."""
    collector = Taken()
    server = HttpServer(("127.0.0.1", 0), collector)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.port}")
    bridge = Bridge(tmp_path / "bridged", "--to", "otlp_traces")
    metrics = samples.metrics()
    logs = step_metrics(None, {0: {"loss": 1.0}}, event="")
    answers = [
        bridge.post(request.SerializeToString(), f"/v1/{signal}")
        for signal, request in (("metrics", metrics), ("logs", logs))
    ]
    bridge.kill()
    server.close()

    assert answers == [(200, b"")] * 2
    assert [request.SerializeToString() for request in collector.requests] == [
        metrics.SerializeToString(),
        logs.SerializeToString(),
    ]


def test_the_name_of_an_event_as_an_attribute(bridge: Bridge) -> None:
    """As SDKs and Collectors have it that do not know the field yet."""
    request = step_metrics("named", {3: {"loss": 1.0}}, event="")
    request.resource_logs[0].scope_logs[0].log_records[0].attributes.extend(pairs({"event.name": "rl.step.metrics"}))
    bridge.send(request)

    assert [row["step"] for row in rows(bridge, "named", 1)] == [3]


def test_nobody_comes_in_without_the_token(tmp_path: Path) -> None:
    """Over HTTP and over gRPC."""
    (tmp_path / "token").write_text("a-secret-of-the-tests\n")
    (tmp_path / "token").chmod(0o600)
    bridge = Bridge(tmp_path / "bridged", "--token-file", str(tmp_path / "token"))
    request = step_metrics("run", {0: {"loss": 1.0}})
    statuses = [
        bridge.post(request.SerializeToString(), **headers)[0]
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer a-secret-of-the-tests"})
    ]
    stub = LogsServiceStub(grpc.insecure_channel(f"127.0.0.1:{bridge.grpc}"))
    with pytest.raises(grpc.RpcError) as refused:
        stub.Export(request)
    answer = stub.Export(request, metadata=[("authorization", "Bearer a-secret-of-the-tests")])
    bridge.kill()

    assert statuses == [401, 401, 200]
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert answer.partial_success.rejected_log_records == 0


@needs_program("openssl")
def test_tls(tmp_path: Path) -> None:
    """A sender that trusts the certificate comes in; nobody does without encryption."""
    made = certificates(tmp_path)
    files = ("--tls-cert", str(made / "server.pem"), "--tls-key", str(made / "server.key"))
    bridge = Bridge(tmp_path / "bridged", *files)
    request = step_metrics("run", {0: {"loss": 1.0}})
    trusting = ssl.create_default_context(cafile=str(made / "authority.pem"))
    post = urllib.request.Request(
        f"https://127.0.0.1:{bridge.http}/v1/logs",
        request.SerializeToString(),
        {"Content-Type": "application/x-protobuf"},
    )
    with urllib.request.urlopen(post, timeout=30, context=trusting) as answer:
        over_http = answer.status
    credentials = grpc.ssl_channel_credentials((made / "authority.pem").read_bytes())
    over_grpc = LogsServiceStub(grpc.secure_channel(f"127.0.0.1:{bridge.grpc}", credentials)).Export(request)
    with pytest.raises(OSError):  # noqa: PT011 - whichever way the connection ends
        bridge.post(request.SerializeToString())
    bridge.kill()

    assert over_http == 200
    assert over_grpc.partial_success.rejected_log_records == 0


def test_a_place_that_cannot_be_written_asks_for_patience(bridge: Bridge) -> None:
    """Nothing is taken; the sender is to come again, and is taken then."""
    place = bridge.directory / "p" / "patient"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("in the way")
    request = step_metrics("patient", {0: {"loss": 1.0}})
    status, _ = bridge.post(request.SerializeToString())
    place.unlink()
    bridge.send(request)

    assert status == 503
    assert len(rows(bridge, "patient", 1)) == 1


@pytest.mark.slow
def test_sigterm_ends_the_bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the exporters of several runs hang."""
    (tmp_path / "stuck.py").write_text(
        "import time\n"
        "class Stuck:\n"
        "    def __init__(self, run): pass\n"
        "    def export(self, items): time.sleep(1000)\n"
        "    def shutdown(self): pass\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bridge = Bridge(tmp_path / "bridged", "--to", "stuck:Stuck")
    for n in range(5):
        bridge.send(step_metrics(f"run-{n}", {0: {"loss": 1.0}}))
    bridge.stop()  # within 60 s

    assert bridge.process.returncode == 0
    assert "not everything was delivered" in bridge.log


def test_any_thread_may_get_the_signal(tmp_path: Path) -> None:
    """The kernel chooses which thread it interrupts; the bridge ends whichever it is."""
    bridge = Bridge(tmp_path / "bridged", "--to", "jsonl")
    bridge.send(step_metrics("run", {0: {"loss": 1.0}}))
    pid = bridge.process.pid
    other = max(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir() if int(task.name) != pid)
    ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM)

    assert bridge.process.wait(30) == 0


@pytest.mark.slow
@needs("tensorboard")
@needs("wandb")
def test_json_out_of_order_reaches_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed, later steps first, some twice, some that make no sense: what was answered is there once, exactly."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("WANDB_MODE", "offline")
    bridge = Bridge(tmp_path / "bridged", "--to", "tensorboard", "--to", "wandb")
    steps = {step: 1 / (step + 3) for step in range(60)}
    order = [range(40, 60), range(20), range(10, 30), range(30, 40), range(20, 40)]
    for part in order:
        body = as_json({step: steps[step] for step in part})
        assert bridge.post(body[:-9], Content_Type="application/json")[0] == 400
        sent = bridge.post(gzip.compress(body), Content_Type="application/json", Content_Encoding="gzip")
        assert (sent[0], json.loads(sent[1])) == (200, {})
    bridge.stop()
    run_dir = bridge.directory / "p" / "run"
    wandb_file.wait_until_written(str(run_dir))
    (file,) = wandb_file.files(str(run_dir))
    told = {int(line["step"]): float(line["loss"]) for line in wandb_file.history(file) if "loss" in line}
    scalars = EventAccumulator(str(run_dir / "tensorboard"), {"scalars": 0}).Reload().Scalars("loss")
    arrived = list(dict.fromkeys(step for part in order for step in part))

    assert list(told.items()) == [(step, steps[step]) for step in arrived]
    assert [event.step for event in scalars] == arrived
    assert [event.value for event in scalars] == [pytest.approx(steps[step], rel=1e-6) for step in arrived]
