"""OpenTelemetry's standard variables, with their standard meaning.

Source: OpenTelemetry specification, "Environment Variable Specification" and "OTLP Exporter".
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.export import READER_ENTRY_POINT_GROUP
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import encodable_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping

Plugin = tuple[str, dict[str, object]]
_warnings = Occasional(log_of(__name__))
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
UNUSED = {
    "OTEL_CONFIG_FILE": "settings come from variables, keywords of init() and OTEL_RL_CONFIG_FILE",
    "OTEL_EXPERIMENTAL_CONFIG_FILE": "settings come from variables, keywords of init() and OTEL_RL_CONFIG_FILE",
    "OTEL_EXPORTER_ZIPKIN_ENDPOINT": "send OTLP to a Collector that exports to Zipkin",
    "OTEL_EXPORTER_OTLP_SPAN_INSECURE": "it is obsolete; set OTEL_EXPORTER_OTLP_TRACES_INSECURE",
    "OTEL_EXPORTER_OTLP_METRIC_INSECURE": "it is obsolete; set OTEL_EXPORTER_OTLP_METRICS_INSECURE",
}
"""Standard variables that have no effect, and what to use instead; a warning says so."""


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) < 12


def _is_duration(text: str) -> bool:
    try:
        return 0 < float(text) < 1e12  # a longer one overflows in a wait
    except ValueError:
        return False


def _are_propagators(text: str) -> bool:
    known = {point.name for point in importlib.metadata.entry_points(group="opentelemetry_propagator")}
    return all(name.strip() in known | {"none"} for name in text.split(","))


_LIMITS = (
    *("ATTRIBUTE_COUNT", "SPAN_ATTRIBUTE_COUNT", "EVENT_ATTRIBUTE_COUNT", "LINK_ATTRIBUTE_COUNT"),
    *("LOGRECORD_ATTRIBUTE_COUNT", "SPAN_EVENT_COUNT", "SPAN_LINK_COUNT"),
    *("ATTRIBUTE_VALUE_LENGTH", "SPAN_ATTRIBUTE_VALUE_LENGTH", "LOGRECORD_ATTRIBUTE_VALUE_LENGTH"),
)
_BATCHING = ("MAX_EXPORT_BATCH_SIZE", "MAX_QUEUE_SIZE", "SCHEDULE_DELAY", "EXPORT_TIMEOUT")
_COUNTS = (
    *(f"OTEL_{limit}_LIMIT" for limit in _LIMITS),
    *(f"OTEL_{processor}_{option}" for processor in ("BSP", "BLRP") for option in _BATCHING),
)
_FILTERS = ("trace_based", "always_on", "always_off")
_RULES: dict[str, tuple[Callable[[str], bool], str]] = {
    **dict.fromkeys(_COUNTS, (_is_count, "a number of 0 or more")),
    "OTEL_METRIC_EXPORT_INTERVAL": (_is_duration, "milliseconds, more than 0"),
    "OTEL_METRIC_EXPORT_TIMEOUT": (_is_duration, "milliseconds, more than 0"),
    "OTEL_EXPORTER_PROMETHEUS_PORT": (lambda text: _is_count(text) and 0 < int(text) < 1 << 16, "a port, such as 9464"),
    "OTEL_METRICS_EXEMPLAR_FILTER": (_FILTERS.__contains__, "trace_based, always_on or always_off"),
    "OTEL_SDK_DISABLED": (("true", "false").__contains__, "true or false"),
    "OTEL_PROPAGATORS": (_are_propagators, "installed propagators with commas between them, or none"),
}
"""Which values of a variable are valid, and the words for them. OpenTelemetry's SDK raises on some of the others."""


@contextlib.contextmanager
def only_valid(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Hide invalid values from OpenTelemetry's SDK, which raises on some of them when it is imported or built."""
    before = {name: environ[name] for name in _RULES if name in environ}
    for name, text in before.items():
        valid = _valid(environ, name)
        if not valid:
            del environ[name]
        elif valid != text:
            environ[name] = valid
    try:
        yield
    finally:
        # Restored: the variables are those of the trainer's process, and its own SDK may read them later.
        environ.update(before)


def sdk_is_disabled(environ: Mapping[str, str]) -> bool:
    """Return whether `OTEL_SDK_DISABLED` disables spans and metrics; trackers continue."""
    return _valid(environ, "OTEL_SDK_DISABLED") == "true"


def metric_readers(environ: Mapping[str, str]) -> list[Plugin]:
    """Return the metric readers that `OTEL_METRICS_EXPORTER` lists.

    If it is not set: Prometheus, and OTLP where an OTLP endpoint for metrics is known.
    """
    if sdk_is_disabled(environ):
        return []
    listed = _listed(environ, "METRICS")
    if listed is None:
        listed = ["prometheus", *(["otlp"] if _endpoint(environ, "METRICS") else [])]
    host = encodable_text(environ.get("OTEL_EXPORTER_PROMETHEUS_HOST", "")) or "127.0.0.1"
    options: dict[str, dict[str, object]] = {
        "prometheus": {"host": host, "port": int(_valid(environ, "OTEL_EXPORTER_PROMETHEUS_PORT") or 9464)}
    }
    return [(name.replace("/", "_"), options.get(name, {})) for name in listed]


def otlp_exporters(environ: Mapping[str, str]) -> list[Plugin]:
    """Return the exporters of spans and of step events that have an endpoint or are listed."""
    if sdk_is_disabled(environ):
        return []
    plugins: list[Plugin] = []
    for signal in ("TRACES", "LOGS"):
        listed = _listed(environ, signal)
        if listed is None:
            listed = ["otlp"] if _endpoint(environ, signal) else []
        plugins += [(f"{name.replace('/', '_')}_{signal.lower()}", {}) for name in listed]
    return plugins


def prints(environ: Mapping[str, str]) -> bool:
    """Return whether a signal goes to standard output."""
    plugins = [*metric_readers(environ), *otlp_exporters(environ)]
    return any(name.startswith(("console", "otlp_stdout")) for name, _ in plugins)


def warn_of_unused(environ: Mapping[str, str]) -> None:
    """Log the variables that are set and have no effect."""
    for name, instead in UNUSED.items():
        if environ.get(name):
            _warnings.warn(f"{name} is set and not used: {instead}")


def log_level(environ: Mapping[str, str]) -> int:
    """Return the level that `OTEL_LOG_LEVEL` sets for the agent's log."""
    text = environ.get("OTEL_LOG_LEVEL", "").strip().lower() or "info"
    if text not in _LEVELS:
        _warnings.warn(f"OTEL_LOG_LEVEL={text!r} is unknown and ignored; known are: {', '.join(_LEVELS)}")
    return _LEVELS.get(text, logging.INFO)


class OtelLimits(NamedTuple):
    """The maximum numbers of attributes, events and links, and of characters in a text; `None` for no limit.

    The names of `record_*` are those of OpenTelemetry's log records.
    """

    span_attributes: int | None
    span_text: int | None
    events: int | None
    event_attributes: int | None
    links: int | None
    link_attributes: int | None
    record_attributes: int | None
    record_text: int | None


def limits(environ: Mapping[str, str]) -> OtelLimits:
    """Return the limits of attributes, spans and log records; specific variables win over general ones."""

    def limit(default: int | None, *names: str) -> int | None:
        texts = (_valid(environ, f"OTEL_{name}_LIMIT") for name in names)
        return next((int(text) for text in texts if text), default)

    return OtelLimits(
        span_attributes=limit(128, "SPAN_ATTRIBUTE_COUNT", "ATTRIBUTE_COUNT"),
        span_text=limit(None, "SPAN_ATTRIBUTE_VALUE_LENGTH", "ATTRIBUTE_VALUE_LENGTH"),
        events=limit(128, "SPAN_EVENT_COUNT"),
        event_attributes=limit(128, "EVENT_ATTRIBUTE_COUNT", "ATTRIBUTE_COUNT"),
        links=limit(128, "SPAN_LINK_COUNT"),
        link_attributes=limit(128, "LINK_ATTRIBUTE_COUNT", "ATTRIBUTE_COUNT"),
        record_attributes=limit(128, "LOGRECORD_ATTRIBUTE_COUNT", "ATTRIBUTE_COUNT"),
        record_text=limit(None, "LOGRECORD_ATTRIBUTE_VALUE_LENGTH", "ATTRIBUTE_VALUE_LENGTH"),
    )


def batch_size(environ: Mapping[str, str], signal: str) -> int:
    """Return the maximum number of spans or log events in a request."""
    name = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" if signal == "TRACES" else "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE"
    return int(_valid(environ, name) or 0) or 512


def resource(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the resource attributes of the environment, and the host name."""
    import socket
    from urllib.parse import unquote

    entries = [entry for entry in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",") if entry.strip()]
    pairs = [
        (encodable_text(key.strip()), encodable_text(unquote(value.strip())))
        for key, _, value in (entry.partition("=") for entry in entries)
    ]
    if any("=" not in entry or not entry.split("=")[0].strip() for entry in entries):  # then all of it is discarded
        _warnings.warn("OTEL_RESOURCE_ATTRIBUTES is ignored: expected key=value pairs with commas between them")
        pairs = []
    attributes = {"host.name": socket.gethostname()} | dict(pairs)
    name = encodable_text(environ.get("OTEL_SERVICE_NAME", ""))
    return attributes | {"service.name": name} if name else attributes


def _listed(environ: Mapping[str, str], signal: str) -> list[str] | None:
    """Return the known values that a variable lists, each once; `None` if it lists nothing."""
    variable = f"OTEL_{signal}_EXPORTER"
    names = [name.strip().lower() for name in environ.get(variable, "").split(",") if name.strip()]
    if not names:
        return None
    known = {"console", "otlp", "otlp/stdout"} | (_readers() if signal == "METRICS" else set())
    for name in names:
        if name not in known and name != "none":
            more = "; send OTLP to a Collector that exports to it" if name in ("zipkin", "jaeger") else ""
            _warnings.warn(f"{variable}: {name!r} is ignored; known are: {', '.join(sorted(known))}, none{more}")
    return [name for name in dict.fromkeys(names) if name in known]


def _readers() -> set[str]:
    points = importlib.metadata.entry_points(group=READER_ENTRY_POINT_GROUP)
    return {point.name for point in points} - {"otlp_stdout"}


def _valid(environ: Mapping[str, str], name: str) -> str:
    """Return the value of a variable in lower case; empty if it is not set, or invalid, which is warned about."""
    text = environ.get(name, "").strip()
    is_valid, expected = _RULES[name]
    if text and not is_valid(text.lower()):
        _warnings.warn(f"{name}={text!r} is ignored: expected {expected}")
        return ""
    return text.lower()


def _endpoint(environ: Mapping[str, str], signal: str) -> str:
    names = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((environ[name].strip() for name in names if environ.get(name, "").strip()), "")
