"""Concurrent scrapes of the metrics endpoint, run with `python -m benchmarks scrape`."""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, start_http_server

from benchmarks.tables import Cell, Table
from otel_rl.export import RunInfo
from otel_rl_exporters.prometheus import PrometheusReader

SERIES = 2_000
AT_ONCE = (1, 100)
_ROUNDS = 3


def measure() -> list[Table]:
    """Return how long scrapes take with otel-rl's server, and with prometheus_client's, in turns."""
    reader = PrometheusReader(RunInfo("run", "p", "n", "."), port=19464)
    registry = CollectorRegistry()
    old_reader = PrometheusMetricReader(registry=registry)
    providers = [_filled(reader.reader), _filled(old_reader)]
    server, _ = start_http_server(0, "127.0.0.1", registry)
    places = (str(reader.address), f"http://127.0.0.1:{server.server_port}/metrics")
    rows: list[list[Cell]] = []
    for number in AT_ONCE:
        rounds = [[max(scrapes(place, number)) for place in places] for _ in range(_ROUNDS)]
        own, old = (statistics.median(one[n] for one in rounds) for n in range(2))
        ratio = statistics.median(one[1] / one[0] for one in rounds)
        rows.append([number, round(own, 2), round(old, 2), round(ratio, 1)])
    server.shutdown()
    server.server_close()
    for provider in providers:
        provider.shutdown()
    reader.shutdown()
    columns = ["scrapes at once", "otel-rl, slowest, s", "prometheus_client's server, slowest, s", "ratio"]
    note = "Requests that arrive during a rendering share the next one. Target: 100 scrapes in less than 2 s."
    return [Table(f"Scrapes of {SERIES:,} series, from threads of the same process", columns, rows, note)]


def _filled(reader: PrometheusMetricReader) -> MeterProvider:
    """Return a provider with gauges of 20 series each."""
    provider = MeterProvider([reader])
    meter = provider.get_meter("benchmark")
    for name in range(SERIES // 20):
        gauge = meter.create_gauge(f"gauge.{name}")
        for rank in range(20):
            gauge.set(rank / 3, {"rl.rank": rank, "rl.phase": "generate"})
    return provider


def scrapes(url: str, number: int) -> list[float]:
    """Return how many seconds each of so many scrapes took that began at the same time."""
    took: list[float] = []
    begin = threading.Barrier(number)

    def scrape() -> None:
        begin.wait()
        begun = time.perf_counter()
        while True:
            try:
                page = _read(url)
                break
            except OSError:  # a server with a short queue resets connections; Prometheus would try again too
                time.sleep(0.01)
        took.append(time.perf_counter() - begun)
        assert page.count(b"\ngauge_") >= SERIES

    threads = [threading.Thread(target=scrape) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(took) == number
    return took


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return bytes(answer.read())
