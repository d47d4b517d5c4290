"""Prometheus: OTel's own pull reader behind prometheus_client's HTTP server."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, start_http_server

from otel_rl import semconv

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer as _Server

    from otel_rl.export import RunInfo

_PORTS = 100
_LABELS = frozenset({semconv.RUN_ID, semconv.RUN_NAME, semconv.RUN_PROJECT})


class PrometheusReader:
    """Serves `/metrics` on the first free port, starting at `port`.

    The run's identity is a label of every series; the rest of the resource is in `target_info`.

    Attributes:
        reader: The SDK's metric reader.
        address: URL to scrape.

    Raises:
        OSError: None of the 100 ports is free, or the host is not an address of this machine.
    """

    requires = ("prometheus_client",)

    def __init__(self, run: RunInfo, *, host: str = "127.0.0.1", port: int = 9464) -> None:
        registry = CollectorRegistry()
        self._server, actual = _serve(host, port, registry)
        self.address: str | None = f"http://{_shown(host)}:{actual}/metrics"
        self.reader = PrometheusMetricReader(
            registry=registry,
            scope_info_enabled=False,  # there is only one scope, so its labels would be the same on every series
            resource_attribute_filter=_LABELS.__contains__,
        )

    def shutdown(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


def _serve(host: str, port: int, registry: CollectorRegistry) -> tuple[_Server, int]:
    last = min(port + _PORTS, 1 << 16) - 1
    for candidate in range(port, last + 1):
        try:
            server, _ = start_http_server(candidate, host, registry)
        except OSError as error:
            if candidate == last:
                raise OSError(
                    f"no port from {port} to {last} is free on {host} ({error.strerror}); "
                    "set OTEL_EXPORTER_PROMETHEUS_PORT, or OTEL_METRICS_EXPORTER=none to have no endpoint"
                ) from error
        else:
            return server, server.server_port
    raise ValueError(f"invalid port={port}: must be between 0 and 65535")


def _shown(host: str) -> str:
    reachable = socket.gethostname() if host in ("", "0.0.0.0", "::") else host  # for a Prometheus elsewhere
    return f"[{reachable}]" if ":" in reachable else reachable
