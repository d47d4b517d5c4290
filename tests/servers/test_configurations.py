"""Each file of deploy/ that a server reads does what it says, in that server."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import Status, StatusCode, format_trace_id

import otel_rl
from otel_rl.serve.servers import PORTS
from tests.collector import free_port, wait_for
from tests.prometheus import Prometheus, running
from tests.real_parts import needs_program
from tests.servers.running import (
    A_WHILE,
    DEPLOY,
    Collector,
    Webhook,
    get,
    needs_prometheus_3,
    send_alerts_to,
    stack,
    trace,
)
from tests.servers.ways import ways

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
needs_traces = [needs_program("otelcol"), needs_program("jaeger"), needs_program("prometheus")]


def spans(exporter: SpanExporter, *names: str, ok: bool = True, **attributes: str) -> list[str]:
    """Send spans, each a trace of its own; return the ids of the traces."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ids = []
    for name in names:
        with provider.get_tracer("test").start_as_current_span(name, attributes=attributes) as span:
            span.set_status(Status(StatusCode.OK if ok else StatusCode.ERROR))
        ids.append(format_trace_id(span.get_span_context().trace_id))
    provider.shutdown()
    return ids


def marks(test: object) -> object:
    """Mark a test of traces."""
    for mark in needs_traces:
        test = mark(test)  # type: ignore[operator]
    return test


@marks
def test_the_queue_of_the_gateway_survives_its_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces that it took while nobody received them arrive after it was killed."""
    nobody, health = free_port(), f"127.0.0.1:{free_port()}"
    settings = {"receivers.otlp.protocols.grpc.endpoint": "127.0.0.1:0", "extensions.health_check.endpoint": health}
    gateway = Collector("gateway", tmp_path, settings, TRACES=f"127.0.0.1:{nobody}")
    gateway.start()
    taken = spans(OTLPSpanExporter(f"http://127.0.0.1:{gateway.port}/v1/traces"), *(f"n{n}" for n in range(20)))
    gateway.kill()
    with stack(monkeypatch), Collector("gateway", tmp_path, settings, TRACES=f"127.0.0.1:{PORTS['traces']}"):
        wait_for(lambda: all(map(trace, taken)), "traces are missing", A_WHILE)


@marks
def test_tail_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All failed traces and all steps arrive, and few of the others."""
    sooner = {"processors.tail_sampling.decision_wait": "2s"}
    with stack(monkeypatch):
        with Collector("tail-sampling", tmp_path, sooner, TRACES=f"127.0.0.1:{PORTS['traces']}") as collector:
            exporter = f"127.0.0.1:{collector.port}"
            others = spans(GrpcExporter(exporter, insecure=True), *["request"] * 100)
            kept = spans(GrpcExporter(exporter, insecure=True), "broken", ok=False)
            kept += spans(GrpcExporter(exporter, insecure=True), "step", **{"rl.phase": "step"})
            wait_for(lambda: all(map(trace, kept)), "traces are missing", A_WHILE)
        found = sum(bool(trace(one)) for one in others)

    assert found < 50


@needs_prometheus_3
def test_prometheus_receives_otlp(tmp_path: Path) -> None:
    """With otlp.yml after prometheus.yml, metrics that an agent sends have the run and its name."""
    for name in ("prometheus.yml", "alertmanagers.json"):
        (tmp_path / name).write_text((DEPLOY / "prometheus" / name).read_text())
    with (tmp_path / "prometheus.yml").open("a") as file:
        file.write((DEPLOY / "prometheus" / "otlp.yml").read_text())
    with running(tmp_path, "--web.enable-otlp-receiver") as prometheus, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{prometheus.url}/api/v1/otlp/v1/metrics")
        environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
        run = otel_rl.init(project="p", id="sent", exporters=["jsonl"], quiet=True, hardware=False)
        with run.step(0):
            run.log({"reward": 1.0})
        wait_for(lambda: prometheus.query('rl_run_info{rl_run_id="sent"}'), "nothing was received", A_WHILE)
        run.finish(30)


@needs_prometheus_3
@needs_program("otelcol")
def test_metrics_through_the_collector(tmp_path: Path) -> None:
    """With metrics.yaml, they come in each way that it has, with the run and the agent's own name."""
    with ways(tmp_path) as found, pytest.MonkeyPatch.context() as environment:
        for name, value in found.environment.items():
            environment.setenv(name, value)
        run = otel_rl.init(project="p", id="sent", exporters=["jsonl"], quiet=True, hardware=False)
        for way, server in found.servers.items():
            query = f'rl_run_info{{rl_run_id="sent", instance="sent/{socket.gethostname()}"}}'
            wait_for(lambda server=server, query=query: server.query(query), f"{way}: nothing was received", A_WHILE)  # type: ignore[misc]
        run.finish(30)


@needs_program("prometheus")
def test_engines_without_content_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus scrapes a page of an inference server that does not say its type."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"vllm:num_requests_running 3\n")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as engine, stack(monkeypatch):
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        targets = [{"targets": [f"127.0.0.1:{engine.server_port}"], "labels": {"rl_role": "engine"}}]
        Path("runs/.targets/engine.json").write_text(json.dumps(targets))
        prometheus = Prometheus(f"http://127.0.0.1:{PORTS['prometheus']}")
        wait_for(lambda: prometheus.value("vllm:num_requests_running") == 3, "the engine is not scraped", A_WHILE)
        engine.shutdown()


@needs_program("prometheus")
def test_alerts_are_grouped_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is one message, without the stall that follows from a lost rank."""
    told = [("RLRankLost", "one"), ("RLNonFinite", "one"), ("RLStalled", "one"), ("RLStalled", "two")]
    body = [{"labels": {"alertname": name, "rl_run_id": run, "severity": "critical"}} for name, run in told]
    with Webhook() as webhook, stack(monkeypatch):
        send_alerts_to(webhook.url)
        address = f"http://127.0.0.1:{PORTS['alertmanager']}/api/v2/alerts"
        json_type = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), json_type)):
            pass
        wait_for(lambda: len(webhook.messages) == 2, "the messages do not come", A_WHILE)
    found = {
        message["groupLabels"]["rl_run_id"]: sorted(alert["labels"]["alertname"] for alert in message["alerts"])
        for message in webhook.messages
    }

    assert found == {"one": ["RLNonFinite", "RLRankLost"], "two": ["RLStalled"]}


@marks
def test_status_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack has all servers that are on PATH, and the Collector passes traces on to Jaeger."""
    with stack(monkeypatch) as output:
        (sent,) = spans(OTLPSpanExporter(f"http://127.0.0.1:{PORTS['otlp_http']}/v1/traces"), "through")
        wait_for(lambda: trace(sent) == ["through"], "the trace does not come", A_WHILE)
        assert get("jaeger", "/api/services")["total"] >= 1
    lines = dict(line.split(": ", 1) for line in output.splitlines())

    assert {name for name, text in lines.items() if text.startswith("http://")} >= {"prometheus", "jaeger", "collector"}
    assert "https://github.com/grafana/tempo/releases" in lines["tempo"]


@pytest.mark.parametrize("name", ["tempo", "tempo-3"])
def test_tempo(name: str) -> None:
    """Neither file reports usage, and that for 3 has no part that 3 does not know. No server was here to read them."""
    found = yaml.safe_load((DEPLOY / "tempo" / f"{name}.yaml").read_text())

    assert found["usage_report"] == {"reporting_enabled": False}
    assert (name == "tempo") == ("ingester" in found) == ("compactor" in found)
