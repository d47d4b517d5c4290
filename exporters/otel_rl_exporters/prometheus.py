"""Prometheus: OTel's own pull reader behind an HTTP server that renders once for all who ask at the same time."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from otel_rl import semconv
from otel_rl.recorder.settings import listeners, tokens

if TYPE_CHECKING:
    from otel_rl.export import RunInfo

_FIX = "set OTEL_EXPORTER_PROMETHEUS_PORT, or OTEL_METRICS_EXPORTER=none to have no endpoint"
_LABELS = frozenset({semconv.RUN_ID, semconv.RUN_NAME, semconv.RUN_PROJECT})
_IDLE_S, _BODY_S = 60.0, 5.0
_MOST_CONNECTIONS = 512


class PrometheusReader:
    """Serves `/metrics` on the first free port, starting at `port`.

    The run's identity is a label of every series; the rest of the resource is in `target_info`. Requests need the
    token for scraping if there is one. An address that other machines reach needs it, and TLS.

    Attributes:
        reader: The SDK's metric reader.
        address: URL to scrape.
        needs_token: Whether requests need a token.

    Args:
        insecure: If true, other machines may scrape without TLS.

    Raises:
        OSError: None of the 100 ports is free, or the host is not an address of this machine.
        SettingsError: Other machines reach the address, and it has no token or no TLS.
    """

    requires = ("prometheus_client",)

    def __init__(self, run: RunInfo, *, host: str = "127.0.0.1", port: int = 9464, insecure: bool = False) -> None:
        from otel_rl.recorder.otlp.answers import RefusalCounter
        from otel_rl.recorder.otlp.gate import Gate
        from otel_rl.recorder.otlp.serving import Serving, listen_from  # the HTTP server, which the agent alone loads
        from otel_rl_exporters.metrics_page import Pages
        from otel_rl_exporters.prometheus_exemplars import ExemplarReader, WithExemplars

        is_local = listeners.is_loopback(host)
        valid = tokens.find(use="scrape")
        listeners.check_endpoint(host, os.environ, has_token=bool(valid), insecure=insecure)
        tls = None if is_local else listeners.server_tls(os.environ)
        registry = CollectorRegistry()
        try:
            sockets, actual = listen_from(host, port)
        except OSError as error:
            raise OSError(f"{error}; {_FIX}") from error
        self.address: str | None = f"{'https' if tls else 'http'}://{_shown(host)}:{actual}/metrics"
        self.reader = ExemplarReader(
            registry=registry,
            scope_info_enabled=False,  # there is only one scope, so its labels would be the same on every series
            resource_attribute_filter=_LABELS.__contains__,
        )
        self.needs_token = bool(valid)
        self._pages = Pages(WithExemplars(registry, self.reader))
        self._serving = Serving(
            sockets,
            self._pages,
            Gate(valid, host),
            RefusalCounter(),
            name="otel-rl-metrics",
            tls=tls,
            idle_s=_IDLE_S,
            body_s=_BODY_S,
            most=_MOST_CONNECTIONS,
        )

    def shutdown(self) -> None:
        """Close the port."""
        self._serving.close(1.0)
        self._pages.close()


def _shown(host: str) -> str:
    reachable = socket.gethostname() if host in ("", "0.0.0.0", "::") else host  # for a Prometheus elsewhere
    return f"[{reachable}]" if ":" in reachable else reachable
