"""A series that ends is gone at once in the servers that receive metrics by OTLP, although they keep silent ones."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import otel_rl
from tests.collector import free_port, wait_for
from tests.prometheus import running
from tests.real_parts import needs_program
from tests.recorder.agent.hardware.engine_pages import Vllm, serving
from tests.servers.running import A_WHILE, Collector, needs_prometheus_3

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


def end_everything(endpoint: str, has: Callable[[str], bool], environment: pytest.MonkeyPatch) -> None:
    """Record a run whose metrics go to a server that `has` series; see them end with a phase, and with the run.

    Servers make `target_info` themselves, and keep it.
    """
    environment.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint)
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
    run = otel_rl.init(project="p", id="ended", exporters=["jsonl"], quiet=True, hardware=False)
    with run.step(0):
        with run.phase("generate"):
            wait_for(lambda: has('rl_phase_open_time_seconds{rl_phase="generate"}'), "the phase is missing", A_WHILE)
        wait_for(lambda: not has('rl_phase_open_time_seconds{rl_phase="generate"}'), "the phase is there", A_WHILE)
        assert has("rl_run_info")
    run.finish(30)
    for name in ("rl_run_info", "rl_phase_duration_seconds_bucket", "rl_train_steps_total"):
        wait_for(lambda name=name: not has(name), f"{name} is there after the end", A_WHILE)  # type: ignore[misc]


def collector(exporter: str, endpoint: str, directory: Path) -> Collector:
    """Return a Collector that passes metrics on."""
    settings = {
        f"exporters.{exporter}.endpoint": endpoint,
        "service.pipelines.metrics.receivers": "[otlp]",
        "service.pipelines.metrics.exporters": f"[{exporter}]",
        "receivers.otlp.protocols.grpc.endpoint": "127.0.0.1:0",
        "extensions.health_check.endpoint": f"127.0.0.1:{free_port()}",
    }
    return Collector("gateway", directory, settings, TRACES=f"127.0.0.1:{free_port()}")


def at(to: Collector) -> str:
    """Return where it takes metrics."""
    return f"http://127.0.0.1:{to.port}/v1/metrics"


@needs_prometheus_3
def test_in_prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own receiver of OTLP."""
    (tmp_path / "prometheus.yml").write_text("{}")
    with running(tmp_path, "--web.enable-otlp-receiver") as prometheus:
        url = f"{prometheus.url}/api/v1/otlp/v1/metrics"
        end_everything(url, lambda series: bool(prometheus.query(series)), monkeypatch)


@needs_prometheus_3
def test_an_inference_server_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its load is in Prometheus although nobody scrapes, and no longer when it does not answer."""
    (tmp_path / "prometheus.yml").write_text("{}")
    with running(tmp_path, "--web.enable-otlp-receiver") as prometheus:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{prometheus.url}/api/v1/otlp/v1/metrics")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
        server = Vllm()
        server.running.labels(*server.engines[0]).set(7)
        with serving(server.registry) as url:
            hardware = {"engines": [url], "interval": 1, "enabled": False}
            run = otel_rl.init(project="p", exporters=["jsonl"], quiet=True, hardware=hardware)
            load = 'rl_engine_server_requests_running{server_address="127.0.0.1"}'
            wait_for(lambda: prometheus.value(load) == 7, "the load is missing", A_WHILE)
        wait_for(lambda: not prometheus.query(load), "the load is there", A_WHILE)
        assert prometheus.query("rl_run_info")
        run.finish(30)


@needs_prometheus_3
@needs_program("otelcol")
def test_by_remote_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a Collector to Prometheus."""
    (tmp_path / "prometheus.yml").write_text("{}")
    with (
        running(tmp_path, "--web.enable-remote-write-receiver") as prometheus,
        collector("prometheusremotewrite", f"{prometheus.url}/api/v1/write", tmp_path) as to,
    ):
        end_everything(at(to), lambda series: bool(prometheus.query(series)), monkeypatch)


@needs_program("otelcol")
def test_on_the_page_of_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That Prometheus scrapes."""
    page = f"127.0.0.1:{free_port()}"

    def has(series: str) -> bool:
        name, _, label = series.rstrip("}").partition("{")
        with urllib.request.urlopen(f"http://{page}/metrics") as answer:
            return any(line.startswith(f"{name}{{") and label in line for line in answer.read().decode().splitlines())

    with collector("prometheus", page, tmp_path) as to:
        end_everything(at(to), has, monkeypatch)
