"""Readers of the metrics endpoint: many at once, slow ones, and those who only connect."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

import otel_rl_exporters.prometheus as endpoint
from otel_rl.export import RunInfo
from otel_rl.recorder.otlp import site
from otel_rl_exporters.prometheus import PrometheusReader
from tests.collector import free_port, wait_for
from tests.security.strangers import at_once, idle

RUN = RunInfo("id", "p", "name", "/nowhere", {})
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"


@pytest.fixture
def reader() -> Iterator[PrometheusReader]:
    found = PrometheusReader(RUN, port=free_port())
    provider = MeterProvider([found.reader])
    gauge = provider.get_meter("test").create_gauge("gauge")
    for rank in range(200):
        gauge.set(rank, {"rank": rank})
    yield found
    found.shutdown()
    provider.shutdown()


def read(reader: PrometheusReader, **headers: str) -> tuple[bytes, Any]:
    request = Request(str(reader.address), headers={name.replace("_", "-"): text for name, text in headers.items()})
    with urlopen(request, timeout=60) as answer:
        return answer.read(), answer.headers


def test_one_rendering_for_many(reader: PrometheusReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 concurrent scrapes, those that arrive during a rendering share the next one."""
    rendered: list[int] = []
    entered, gate = threading.Event(), threading.Event()
    original = CollectorRegistry.collect

    def collect(registry: CollectorRegistry) -> Any:
        rendered.append(1)
        entered.set()
        gate.wait(30)
        return list(original(registry))

    monkeypatch.setattr(CollectorRegistry, "collect", collect)
    first = threading.Thread(target=read, args=(reader,))
    first.start()
    entered.wait(30)
    others = threading.Thread(target=lambda: pages.extend(at_once(99, lambda _: read(reader)[0])))
    pages: list[bytes] = []
    others.start()
    wait_for(lambda: reader._pages.waiting >= 100, "not all scrapes have arrived")
    gate.set()
    first.join()
    others.join()

    assert len(rendered) == 2
    assert len(pages) == 99
    assert len(set(pages)) == 1
    assert pages[0].count(b"\ngauge{") == 200


def test_formats(reader: PrometheusReader) -> None:
    """Each client gets what it accepts: text or OpenMetrics, compressed or not, and the same numbers."""
    plain, _ = read(reader)
    small, headers = read(reader, Accept_Encoding="gzip")
    other, told = read(reader, Accept=OPEN_METRICS)

    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(small).count(b"\ngauge{") == plain.count(b"\ngauge{") == 200
    assert told["Content-Type"].startswith("application/openmetrics-text")
    assert other.endswith(b"# EOF\n")


def test_slow_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that begin a request, or do not read the page, are closed; others are served meanwhile."""
    monkeypatch.setattr(endpoint, "_IDLE_S", 1.0)
    monkeypatch.setattr(site, "_SENT_WITHIN_S", 1.0)
    found = PrometheusReader(RUN, port=free_port())
    provider = MeterProvider([found.reader])
    gauge = provider.get_meter("test").create_gauge("gauge")
    for rank in range(1_900):
        gauge.set(rank, {"rank": rank, "text": "x" * 5_000})
    port = int(str(found.address).rpartition(":")[2].partition("/")[0])
    silent = idle(port, 20) + idle(port, 20, b"GET /metrics HT")
    deaf = [_deaf(port) for _ in range(3)]
    served = read(found)[0]
    wait_for(lambda: len(found._serving.visitors) <= 1, "silent or deaf connections stay")
    got = [_rest(connection) for connection in deaf]
    for connection in silent:
        connection.close()
    found.shutdown()
    provider.shutdown()

    assert served.count(b"\ngauge{") == 1_900
    assert max(got) < len(served)


def _deaf(port: int) -> socket.socket:
    """Return a connection that has asked for a page and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection


def _rest(connection: socket.socket) -> int:
    """Return how many bytes arrived before the server closed the connection."""
    connection.settimeout(20)
    found = 0
    while piece := connection.recv(1 << 20):
        found += len(piece)
    return found
