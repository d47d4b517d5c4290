"""The standard variables of OpenTelemetry; `python -m tests.exporters.otel_variables` writes the page about them."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from otel_rl.recorder.settings.otel_environment import UNUSED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "otel-variables.md"
OPTIONS = {
    "ENDPOINT": "A URL, to which `/v1/<signal>` is added unless it is the signal's own; over gRPC also `host:port`.",
    "PROTOCOL": "`http/protobuf` (default), `http/json` or `grpc`.",
    "HEADERS": "`name=value` with commas between them, values percent-encoded.",
    "TIMEOUT": "Milliseconds for one request, 10000 by default, 0 for no limit. Below 100 it is read as seconds.",
    "COMPRESSION": "`gzip` or `none` (default); over HTTP also `deflate`.",
    "CERTIFICATE": "Wins over `REQUESTS_CA_BUNDLE`; a file that cannot be used raises `SettingsError`.",
    "CLIENT_CERTIFICATE": "For mTLS, together with the key.",
    "CLIENT_KEY": "For mTLS, together with the certificate. It must have no password.",
    "INSECURE": "For endpoints without a scheme; `http://` and `https://` say it themselves.",
}
"""The effects of the variables `OTEL_EXPORTER_OTLP_<option>` and `OTEL_EXPORTER_OTLP_<signal>_<option>`."""
SIGNALS = ("TRACES", "METRICS", "LOGS")


class Variable(NamedTuple):
    """A variable."""

    name: str  # its name
    text: str  # what it does, or why it is declined and what to do instead
    works: bool = True  # whether it does something
    http: bool = True  # whether that holds with OTLP over HTTP
    grpc: bool = True  # whether that holds with OTLP over gRPC


def _declined(name: str, text: str) -> Variable:
    return Variable(name, text, works=False, http=False, grpc=False)


_OUTBOX = "The outbox on disk takes the place of the queue; what is there is sent at once, 512 at a time."
_PYTHON = "A Python package of credentials would have to be imported. Use headers or certificates."
OTLP = [
    Variable(f"OTEL_EXPORTER_OTLP_{signal}{option}", text, http=option != "INSECURE")
    for option, text in OPTIONS.items()
    for signal in ("", *(f"{one}_" for one in SIGNALS))
]
OTHERS = [
    Variable(
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        "`cumulative` (default), `delta` or `lowmemory`.",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        "`explicit_bucket_histogram` (default) or `base2_exponential_bucket_histogram`.",
    ),
    _declined("OTEL_EXPORTER_OTLP_SPAN_INSECURE", "Obsolete; `OTEL_EXPORTER_OTLP_TRACES_INSECURE` works."),
    _declined("OTEL_EXPORTER_OTLP_METRIC_INSECURE", "Obsolete; `OTEL_EXPORTER_OTLP_METRICS_INSECURE` works."),
    Variable(
        "OTEL_TRACES_EXPORTER",
        "`otlp`, `console`, `otlp/stdout`, `none`, or several. If it is not set: `otlp` where an endpoint is set.",
    ),
    Variable(
        "OTEL_METRICS_EXPORTER",
        "`otlp`, `prometheus`, `console`, `otlp/stdout`, `none`, or several. If it is not set: `prometheus`, and "
        "`otlp` where an endpoint is set.",
    ),
    Variable(
        "OTEL_LOGS_EXPORTER",
        "`otlp`, `console`, `otlp/stdout`, `none`, or several. If it is not set: `otlp` where an endpoint is set. "
        "It chooses where step events go; trackers are chosen by `exporters=`.",
    ),
    Variable("OTEL_EXPORTER_PROMETHEUS_HOST", "`127.0.0.1` by default. Other addresses need a token."),
    Variable("OTEL_EXPORTER_PROMETHEUS_PORT", "9464 by default; if that is taken, the next one that is free."),
    _declined("OTEL_EXPORTER_ZIPKIN_ENDPOINT", "Send OTLP to a Collector that exports to Zipkin."),
    _declined("OTEL_EXPORTER_ZIPKIN_TIMEOUT", "Send OTLP to a Collector that exports to Zipkin."),
    Variable("OTEL_METRIC_EXPORT_INTERVAL", "Milliseconds between two exports of metrics, 60000 by default."),
    Variable("OTEL_METRIC_EXPORT_TIMEOUT", "Milliseconds in which an export is repeated, 30000 by default."),
    Variable("OTEL_METRICS_EXEMPLAR_FILTER", "`trace_based` (default), `always_on` or `always_off`."),
    Variable("OTEL_SDK_DISABLED", "If `true`, no spans, no metrics and no OTLP; trackers go on."),
    Variable("OTEL_RESOURCE_ATTRIBUTES", "Added to the resource of all signals; ignored as a whole if malformed."),
    Variable("OTEL_SERVICE_NAME", "`service.name`; the project's name by default."),
    Variable("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "Run by the SDK in the agent, so they see the agent's process."),
    Variable("OTEL_LOG_LEVEL", "Level of `agent.log`: `debug`, `info` (default), `warn` or `error`."),
    Variable(
        "OTEL_TRACES_SAMPLER",
        "`always_on` (default), `always_off`, `traceidratio`, each also with `parentbased_`: which share of the steps "
        "leaves as traces. Slow and failed steps always do. Wins over `OTEL_RL_TRACES_RATIO`; `traces=` of `init()` "
        "wins over both.",
    ),
    Variable("OTEL_TRACES_SAMPLER_ARG", "The ratio of `traceidratio`, 1 by default."),
    Variable("OTEL_ATTRIBUTE_COUNT_LIMIT", "128 by default; for spans, their events and links, and log events."),
    Variable("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "No limit by default; for spans and log events."),
    Variable("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "128 by default; what is left out is in `dropped_attributes_count`."),
    Variable("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "No limit by default."),
    Variable("OTEL_SPAN_EVENT_COUNT_LIMIT", "128 by default."),
    Variable("OTEL_SPAN_LINK_COUNT_LIMIT", "128 by default."),
    Variable("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "128 by default."),
    Variable("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "128 by default."),
    Variable("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", "128 by default. The values of a row are one attribute, a map."),
    Variable("OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT", "No limit by default."),
    Variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "Spans in one request, 512 by default and at most."),
    Variable("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "Log events in one request, 512 by default and at most."),
    _declined("OTEL_BSP_SCHEDULE_DELAY", _OUTBOX),
    _declined("OTEL_BSP_MAX_QUEUE_SIZE", _OUTBOX),
    _declined("OTEL_BSP_EXPORT_TIMEOUT", "Requests are retried until they are accepted; one has the timeout."),
    _declined("OTEL_BLRP_SCHEDULE_DELAY", _OUTBOX),
    _declined("OTEL_BLRP_MAX_QUEUE_SIZE", _OUTBOX),
    _declined("OTEL_BLRP_EXPORT_TIMEOUT", "Requests are retried until they are accepted; one has the timeout."),
    _declined("OTEL_CONFIG_FILE", "Settings come from variables, keywords of `init()` and `OTEL_RL_CONFIG_FILE`."),
    _declined(
        "OTEL_EXPERIMENTAL_CONFIG_FILE", "Settings come from variables, keywords of `init()` and `OTEL_RL_CONFIG_FILE`."
    ),
    _declined(
        "OTEL_PROPAGATORS",
        "Contexts travel as W3C `traceparent`. Instrumentation of other libraries reads it itself.",
    ),
    *(
        _declined(f"OTEL_PYTHON_EXPORTER_OTLP_{protocol}_{signal}CREDENTIAL_PROVIDER", _PYTHON)
        for protocol in ("HTTP", "GRPC")
        for signal in ("", *(f"{one}_" for one in SIGNALS))
    ),
    _declined("OTEL_PYTHON_EXPORTER_OTLP_GRPC_RETRYABLE_ERROR_CODES", "The specification lists the codes."),
]
_HEAD = """# Standard variables of OpenTelemetry

The agent reads the variables that the OpenTelemetry specification has for exporters, resources, samplers and limits.
Numbers and names that are not understood are ignored with a warning. Addresses that cannot be parsed and files that
cannot be used raise `SettingsError` in `init()`. An empty value is the same as none.

A variable that is "declined" has no effect. If it is "declined, warns", a warning says so. The other declined variables
often serve other programs, so only an invalid value of `OTEL_BSP_*`, `OTEL_BLRP_*` or `OTEL_PROPAGATORS` causes one.

This table is written and checked by `tests/exporters/test_otel_variables.py`.

| variable | HTTP | gRPC | what it does, or why it is declined |
|---|---|---|---|
"""


def page() -> str:
    """Return the page of the docs: one line for the variables that have the same effect."""
    lines = [
        f"| {', '.join(f'`{one.name}`' for one in same)} | {' | '.join(effect)} |\n"
        for effect, same in groupby([*OTLP, *OTHERS], key=_effect)
    ]
    return _HEAD + "".join(lines)


def _effect(one: Variable) -> tuple[str, str, str]:
    """Return the cells of a variable: its effect over HTTP, over gRPC, and in words."""
    if not one.works:
        declined = "declined, warns" if one.name in UNUSED else "declined"
        return declined, declined, one.text
    return "yes" if one.http else "no", "yes" if one.grpc else "no", one.text


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
