"""Inference servers and others that send all of their telemetry to the head, and never stop."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from otel_rl.export import Machine, RunInfo, Span
from otel_rl.recorder.journal.record_events import INDEX, JOURNAL, to_event
from otel_rl.recorder.journal.records import Logged
from otel_rl.recorder.settings.head import parse
from otel_rl.recorder.settings.tokens import Tokens
from otel_rl.serve.bridge.http import HttpServer
from otel_rl.serve.head.receiver import HeadReceiver
from otel_rl_exporters.head import HeadExporter
from tests.clients import programs
from tests.collector import wait_for
from tests.distributed.machines import head
from tests.processes import items_of, rows_of, start_python
from tests.real_parts import needs_program
from tests.serve.bridge.bridges import any_value, pairs, step_metrics
from tests.serve.bridge.test_http import Taken

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
_TRAINER = """
import otel_rl, os, time
run = otel_rl.init(dir=".", project="p", id="run-7", head=os.environ["HEAD"], quiet=True, hardware=False)
print(run.dir, flush=True)
for n in range(20):
    with run.step(n):
        run.log({"loss": float(n)})
while not os.path.exists("go"):
    time.sleep(0.02)
print(bool(run.finish(10)), flush=True)
"""
_SERVICES = {"logs": "logs.v1.LogsService", "traces": "trace.v1.TraceService", "metrics": "metrics.v1.MetricsService"}


def telemetry(signal: str, run: str | None, n: int) -> bytes:
    """Return a request of an inference server."""
    from otel_rl.recorder.otlp.signals import SERVICES

    request = SERVICES[signal].request()
    of_resource = getattr(request, f"resource_{'spans' if signal == 'traces' else signal}").add()
    told = {"service.name": "vllm", "telemetry.sdk.language": "go"} | ({} if run is None else {"rl.run.id": run})
    of_resource.resource.attributes.extend(pairs(told))
    if signal == "traces":
        scope = of_resource.scope_spans.add(scope={"name": "otelhttp", "version": "0.58"})
        ids = {"trace_id": (n + 1).to_bytes(16, "big"), "span_id": (n + 1).to_bytes(8, "big")}
        scope.spans.add(name="POST /generate", start_time_unix_nano=n, end_time_unix_nano=n + 1, **ids)
    elif signal == "logs":
        of_resource.scope_logs.add().log_records.add(time_unix_nano=n, body=any_value("a request came"))
    else:
        metric = of_resource.scope_metrics.add().metrics.add(name="vllm:num_requests_running")
        metric.gauge.data_points.add(as_double=1.0, time_unix_nano=n)
    return bytes(request.SerializeToString())


class Sender:
    """Sends one request after the other until it is stopped, whatever the answers are."""

    def __init__(self, address: str, protocol: str, signal: str, run: str | None) -> None:
        self._address, self._protocol, self._signal, self._run = address, protocol, signal, run
        self.sent = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._stopped.wait(0.02):
            body = telemetry(self._signal, self._run, self.sent)
            with contextlib.suppress(OSError, http.client.HTTPException, grpc.RpcError):
                self._send(body)
            self.sent += 1

    def _send(self, body: bytes) -> None:
        if self._protocol == "http":
            status, _ = post(self._address, self._signal, body)
            assert status in (200, 503)
            return
        with grpc.insecure_channel(self._address) as channel:
            call = channel.unary_unary(f"/opentelemetry.proto.collector.{_SERVICES[self._signal]}/Export")
            call(body, timeout=1)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def post(address: str, signal: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("POST", f"/v1/{signal}", body, {"Content-Type": "application/x-protobuf"})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


class Training:
    """A trainer with a head, and a collector to which its agent sends.

    Attributes:
        head: The address of the head.
        run_dir: The run directory.
        requests: Those that the collector got.
    """

    def __init__(self, place: Path, script: str = _TRAINER, *, collects: bool = True) -> None:
        self._place, self.head = place, head()
        collector = Taken()
        self._server = HttpServer(("127.0.0.1", 0), collector)
        self.requests = collector.requests
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.port}"} if collects else {}
        self._trainer = start_python(script, place, HEAD=self.head, **endpoint)
        self.run_dir = place / self.line()

    def line(self) -> str:
        """Return the next line that the trainer prints."""
        assert self._trainer.stdout is not None
        return self._trainer.stdout.readline().strip()

    def finish(self) -> None:
        """End the training; its agent must have delivered everything."""
        (self._place / "go").touch()
        output, errors = self._trainer.communicate(timeout=60)
        self._server.close()
        assert output.strip() == "True", errors + (self.run_dir / "agent.log").read_text()

    def spans(self) -> Iterator[tuple[dict[str, str], Any, Any]]:
        """Yield the resource, the scope and the message of each span that the collector got."""
        for request in self.requests:
            for one in getattr(request, "resource_spans", ()):
                resource = {pair.key: pair.value.string_value for pair in one.resource.attributes}
                for scope in one.scope_spans:
                    yield from ((resource, scope.scope, span) for span in scope.spans)


@pytest.mark.parametrize("signal", ["metrics", "logs", "traces"])
def test_finish_does_not_wait_for_others(signal: str, tmp_path: Path) -> None:
    """Four servers that never stop, over HTTP and gRPC, with and without the run's id: `finish` returns True."""
    training = Training(tmp_path, collects=False)
    senders = [Sender(training.head, protocol, signal, run) for protocol in ("http", "grpc") for run in ("run-7", None)]
    wait_for(lambda: len(rows_of(training.run_dir)) == 20 and senders[0].sent > 5, "the rows are not delivered", 60)
    training.finish()
    for sender in senders:
        sender.stop()


def check_trace(tmp_path: Path, service: str, call: Callable[[str, str], None]) -> None:
    """Run a trainer that calls a server within a step; the server's span must be in the trace of the step.

    Args:
        tmp_path: Where it runs.
        service: What the server calls itself.
        call: Calls a server that sends its spans to the head; it takes the address of the head, and the `traceparent`.
    """
    script = _TRAINER.replace("run.log(", 'n or print(otel_rl.carrier()["traceparent"], flush=True); run.log(')
    training = Training(tmp_path, script)
    parent = training.line()
    call(training.head, parent)
    training.finish()
    found = {
        (span.trace_id.hex(), span.parent_span_id.hex()): resource["service.name"]
        for resource, _, span in training.spans()
    }
    _, trace_id, span_id, _ = parent.split("-")
    assert found[trace_id, span_id] == service
    assert found[trace_id, ""] == "p"


def call_server(command: list[str], parent: str) -> None:
    """Start a server that prints its port and ends with its input; send it a request."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = f"http://127.0.0.1:{server.stdout.readline().strip()}/generate"
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", {"traceparent": parent}), timeout=30) as answer:
        assert answer.read() == b"{}"
    server.communicate(timeout=60)
    assert server.returncode == 0


@needs_program("node")
@needs_program("npm")
def test_a_span_of_a_javascript_server(tmp_path: Path) -> None:
    """It joins the trace of its step, under its own service."""
    place = tmp_path / "js"
    place.mkdir()
    programs.node(place)

    def call(address: str, parent: str) -> None:
        _, trace_id, span_id, _ = parent.split("-")
        subprocess.run(["node", "span.mjs", f"http://{address}", trace_id, span_id], cwd=place, check=True, timeout=60)

    check_trace(tmp_path, "js-server", call)


@needs_program("go")
def test_a_span_of_a_go_server(tmp_path: Path) -> None:
    """`otelhttp`: the same."""
    programs.go(tmp_path, "server")
    program = str(tmp_path / "server")
    check_trace(tmp_path, "go-server", lambda head, parent: call_server([program, f"http://{head}"], parent))


@needs_program("javac")
@needs_program("mvn")
def test_a_span_of_a_java_server(tmp_path: Path) -> None:
    """OpenTelemetry's Java agent: the same; its metrics and logs, which it sends to the head too, delay nothing."""
    program = programs.java(tmp_path, "Server")
    agent = next((tmp_path / "jars").glob("opentelemetry-javaagent-*.jar"))

    def call(address: str, parent: str) -> None:
        options = [f"-javaagent:{agent}", "-Dotel.service.name=java-server"]
        options += [f"-Dotel.exporter.otlp.endpoint=http://{address}", "-Dotel.exporter.otlp.protocol=http/protobuf"]
        call_server([program.command[0], *options, *program.command[1:]], parent)

    check_trace(tmp_path, "java-server", call)


def test_what_others_send_reaches_the_collector(tmp_path: Path) -> None:
    """Spans keep the server's resource and scope, and are not the trainer's; metrics and logs pass byte for byte."""
    training = Training(tmp_path)
    sent = [telemetry(signal, "run-7", 5) for signal in ("metrics", "logs")]
    answers = [post(training.head, signal, body) for signal, body in zip(("metrics", "logs"), sent, strict=True)]
    answers.append(post(training.head, "traces", telemetry("traces", None, 5)))
    training.finish()
    found = {span.name: (resource, scope) for resource, scope, span in training.spans()}
    resource, scope = found["POST /generate"]
    arrived = [request.SerializeToString() for request in training.requests]
    items = items_of(training.run_dir)

    assert answers == [(200, b"")] * 3
    assert [body for body in sent if body in arrived] == sent
    assert resource == {"service.name": "vllm", "telemetry.sdk.language": "go"}
    assert (scope.name, scope.version) == ("otelhttp", "0.58")
    assert found["rl.loop"][0]["service.name"] == "p"
    assert sum(isinstance(item, Span) and item.name == "POST /generate" for item in items) == 1


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[HeadReceiver, str]]:
    address = head()
    receiver = HeadReceiver(address, "run-7", tmp_path, tmp_path, 1 << 20, Tokens())
    yield receiver, address
    receiver.close()


def test_metrics_without_a_collector_are_refused_once(receiver: tuple[HeadReceiver, str]) -> None:
    """The sender hears it once, in words; afterwards they are counted."""
    rejected = []
    for n in range(5):
        status, body = post(receiver[1], "metrics", telemetry("metrics", None, n))
        assert status == 200
        answer = ExportMetricsServiceResponse.FromString(body)
        rejected.append((answer.partial_success.rejected_data_points, answer.partial_success.error_message))

    assert rejected[1:] == [(0, "")] * 4
    assert rejected[0][0] == 1
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in rejected[0][1]
    assert receiver[0].refusals.records == 5


def test_the_agent_s_own_rows_go_in_no_circle(receiver: tuple[HeadReceiver, str]) -> None:
    """An agent whose OTLP endpoint is its own head: the head drops these exports, and does not ask for a retry."""
    request = step_metrics("run-7", {0: {"loss": 1.0}})
    request.resource_logs[0].scope_logs[0].scope.name = "otel_rl"
    answer = post(receiver[1], "logs", request.SerializeToString())

    assert answer == (200, b"")
    assert receiver[0].refusals.records == 1


def test_a_machine_that_only_lives(receiver: tuple[HeadReceiver, str]) -> None:
    """An empty measurement is not passed on; it says that the machine is there."""
    head_agent, address = receiver
    exporter = HeadExporter(RunInfo("run-7", "p", "n", ".", {"rl.run.id": "run-7"}), address=address)
    before = time.time_ns()
    exporter.export([Machine(1, 1, {})])
    exporter.shutdown()

    assert [at >= before for at in head_agent.heard.values()] == [True]
    assert head_agent.accepted.pop() == []


def test_only_machines_of_the_run_are_waited_for(receiver: tuple[HeadReceiver, str]) -> None:
    """And those for a limited time."""
    head_agent, address = receiver
    for signal in ("metrics", "logs"):
        post(address, signal, telemetry(signal, "run-7", 1))
    others = head_agent.is_quiet(time.monotonic())
    post(address, "logs", records("run-8"))
    another_run = head_agent.is_quiet(time.monotonic())
    post(address, "logs", records("run-7"))
    now = time.monotonic()
    head_agent.note_processes(is_over=True, now=now)

    assert (others, another_run) == (True, True)
    assert not head_agent.is_quiet(now)
    assert head_agent.is_quiet(now + 4)
    head_agent._heard_at = now + 1e6  # a machine that never ends
    assert not head_agent.is_quiet(now + 10)
    assert head_agent.is_quiet(now + 16)


def records(run: str) -> bytes:
    """Return what the agent of another machine sends."""
    request = step_metrics(run, {})
    request.resource_logs[0].resource.attributes.extend(pairs({"host.name": "node1"}))
    name, body = to_event(Logged(0, 5, {"loss": 1.0}))
    event = request.resource_logs[0].scope_logs[0].log_records.add(event_name=name, body=any_value(body))
    event.attributes.extend(pairs({JOURNAL: "rank1.attempt0", INDEX: 0}))
    return bytes(request.SerializeToString())


def test_after_the_end_others_are_told_to_come_later(receiver: tuple[HeadReceiver, str]) -> None:
    """So that their spans keep no agent at work."""
    receiver[0].note_processes(is_over=True, now=time.monotonic())
    status, _ = post(receiver[1], "traces", telemetry("traces", None, 1))

    assert status == 503
    assert parse(receiver[1]).port
