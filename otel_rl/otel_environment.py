"""OpenTelemetry's standard variables, with their standard meaning.

Source: OpenTelemetry specification, "Environment Variable Specification" and "OTLP Exporter".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

Plugin = tuple[str, dict[str, object]]


def sdk_is_disabled(environ: Mapping[str, str]) -> bool:
    """Tell whether `OTEL_SDK_DISABLED` turns spans and metrics off; trackers go on."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def metric_readers(environ: Mapping[str, str]) -> list[Plugin]:
    """Return which metric readers the agent needs: what `OTEL_METRICS_EXPORTER` lists.

    If it is not set: Prometheus, and OTLP where an OTLP endpoint for metrics is known.
    """
    if sdk_is_disabled(environ):
        return []
    listed = _listed(environ, "METRICS")
    if listed is None:
        listed = ["prometheus", *(["otlp"] if _wants_otlp(environ, "METRICS") else [])]
    host = environ.get("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
    options: dict[str, dict[str, object]] = {"prometheus": {"host": host, "port": _port(environ)}}
    return [(name, options.get(name, {})) for name in listed]


def otlp_exporters(environ: Mapping[str, str]) -> list[Plugin]:
    """Return the OTLP destinations of spans and of step events that have an endpoint and are wanted."""
    if sdk_is_disabled(environ):
        return []
    return [(f"otlp_{signal.lower()}", {}) for signal in ("TRACES", "LOGS") if _wants_otlp(environ, signal)]


def resource(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the resource attributes that the environment names, and the host's name."""
    import socket
    from urllib.parse import unquote

    pairs = (pair.split("=", 1) for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",") if "=" in pair)
    found = {"host.name": socket.gethostname()} | {key.strip(): unquote(value.strip()) for key, value in pairs}
    name = environ.get("OTEL_SERVICE_NAME")
    return found | {"service.name": name} if name else found


def _port(environ: Mapping[str, str]) -> int:
    text = environ.get("OTEL_EXPORTER_PROMETHEUS_PORT", "9464")
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise SettingsError(f"OTEL_EXPORTER_PROMETHEUS_PORT={text!r}: expected a port, such as 9464")
    return int(text)


def _wants_otlp(environ: Mapping[str, str], signal: str) -> bool:
    listed = _listed(environ, signal)
    return bool(_endpoint(environ, signal)) if listed is None else "otlp" in listed


def _listed(environ: Mapping[str, str], signal: str) -> list[str] | None:
    text = environ.get(f"OTEL_{signal}_EXPORTER", "").strip()
    return [name.strip() for name in text.split(",") if name.strip() not in ("", "none")] if text else None


def _endpoint(environ: Mapping[str, str], signal: str) -> str:
    return environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
