"""OpenTelemetry's own exporters, of Python and of JavaScript, as clients of the bridge."""

from __future__ import annotations

import importlib
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.bridge.bridges import Bridge
from tests.clients.node import node
from tests.collector import wait_for
from tests.processes import rows_of
from tests.real_parts import needs_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["node"]
pytestmark = pytest.mark.timeout(240)
ROWS = 2000


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    bridge = Bridge(tmp_path_factory.mktemp("bridge") / "bridged")
    yield bridge
    bridge.kill()


def rows(bridge: Bridge, run: str) -> list[dict[str, Any]]:
    """Return the rows of a run, when there are as many as were sent."""
    run_dir = bridge.directory / "p" / run
    wait_for(lambda: len(rows_of(run_dir)) >= ROWS, f"there are no {ROWS} rows of {run}; {bridge.log}", 60)
    return rows_of(run_dir)


def endpoint(bridge: Bridge, protocol: str) -> str:
    return f"http://127.0.0.1:{bridge.grpc if protocol == 'grpc' else bridge.http}"


@needs_program("node")
@needs_program("npm")
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json", "grpc"])
def test_javascript(protocol: str, compression: str, bridge: Bridge, node: Path) -> None:
    """Its exporters send chunked over HTTP."""
    run = f"js-{protocol.replace('/', '-')}-{compression}"
    command = ["node", "rows.mjs", endpoint(bridge, protocol), protocol, compression, str(ROWS), run]
    sent = subprocess.run(command, cwd=node, check=True, capture_output=True, text=True, timeout=100)
    found = rows(bridge, run)

    assert sent.stderr == ""
    assert [row["step"] for row in found] == list(range(ROWS))
    assert [row["values"] for row in found] == [{"loss": 1 / (step + 3), "tokens": step} for step in range(ROWS)]


@pytest.mark.parametrize("compression", ["NoCompression", "Gzip", "Deflate"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_python(protocol: str, compression: str, bridge: Bridge, caplog: pytest.LogCaptureFixture) -> None:
    """Its batch processor and its exporters."""
    import grpc
    from opentelemetry._logs import LogRecord
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import Resource

    run = f"python-{protocol}-{compression}".lower()
    module = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{protocol}._log_exporter")
    address = endpoint(bridge, protocol)
    if protocol == "grpc":
        exporter = module.OTLPLogExporter(address, insecure=True, compression=getattr(grpc.Compression, compression))
    else:
        exporter = module.OTLPLogExporter(f"{address}/v1/logs", compression=getattr(Compression, compression))
    provider = LoggerProvider(Resource({"rl.run.id": run, "rl.run.project": "p"}))
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter, max_queue_size=2 * ROWS))
    for step in range(ROWS):
        attributes: dict[str, Any] = {"rl.loop.iteration": step, "rl.step.values": {"loss": 1 / (step + 3)}}
        provider.get_logger("trainer").emit(LogRecord(event_name="rl.step.metrics", attributes=attributes))
    provider.shutdown()
    found = rows(bridge, run)

    assert not caplog.records
    assert [row["step"] for row in found] == list(range(ROWS))
    assert [row["values"] for row in found] == [{"loss": 1 / (step + 3)} for step in range(ROWS)]
