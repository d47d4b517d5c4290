"""The OpenTelemetry Collector between a client and a receiver, as a client of its own.

`python -m tests.clients.collector PROGRAM ENDPOINT PROTOCOL COMPRESSION RUN ROWS BATCH` starts it, and sends it rows
as `tests.clients.rows` does. The last line is the number of rows that it accepted; it ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.clients import rows
from tests.collector import answers, free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def running(program: str, endpoint: str, protocol: str, compression: str, **options: Any) -> Iterator[str]:
    """Run one; yield the endpoint where it receives over gRPC.

    Args:
        program: The Collector.
        endpoint: Where it sends what it receives.
        protocol: How it sends.
        compression: "none" or "gzip".
        options: More settings of its exporter; its defaults otherwise.
    """
    port = free_port()
    kind = "otlp" if protocol == "grpc" else "otlphttp"
    exporter = {"endpoint": endpoint, "compression": compression, "tls": {"insecure": True}, **options}
    if protocol != "grpc":
        exporter["encoding"] = "json" if protocol == "http/json" else "proto"
    settings = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {kind: exporter},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"logs": {"receivers": ["otlp"], "exporters": [kind]}},
        },
    }
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "collector.yaml")
        file.write_text(json.dumps(settings))
        process = subprocess.Popen([program, "--config", str(file)], stdin=subprocess.DEVNULL, stdout=sys.stderr)
        try:
            wait_for(lambda: answers(port) or process.poll() is not None, "the Collector does not listen", 60)
            assert process.poll() is None, "the Collector ended"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def main(program: str, endpoint: str, protocol: str, compression: str, run: str, count: str, batch: str) -> None:
    """Send rows through it."""
    with running(program, endpoint, protocol, compression) as near:
        delivered = rows.send(rows.exporter(near, "grpc", "none"), run, int(count), int(batch))
        print(delivered, flush=True)  # noqa: T201
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
