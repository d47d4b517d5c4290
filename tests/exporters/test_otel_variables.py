"""Each standard variable does what the table in the docs says."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opentelemetry.environment_variables as of_the_api
import opentelemetry.sdk.environment_variables as of_the_sdk
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation

from otel_rl.export import Event, RunInfo, Span, SpanEvent, SpanLink
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.recorder.otlp.connection import Connection, Signal, connection
from otel_rl.recorder.settings import otel_environment
from otel_rl.recorder.settings.loading import load
from otel_rl_exporters.otlp import OtlpLogs, OtlpReader, OtlpTraces, readable_records, readable_spans
from otel_rl_exporters.otlp_metrics import OtlpMetricExporter
from otel_rl_exporters.otlp_transport import ServerAnswer, transport
from tests.collector import free_port
from tests.exporters import otel_variables
from tests.exporters.otel_variables import OTHERS, OTLP, SIGNALS
from tests.faults.misbehaving import Misbehaving, Say, certificates, collector
from tests.real_parts import needs_program

both = pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
RUN = RunInfo("i", "p", "n", ".")
_REQUESTS: dict[str, Callable[[], Any]] = {
    "TRACES": ExportTraceServiceRequest,
    "METRICS": ExportMetricsServiceRequest,
    "LOGS": ExportLogsServiceRequest,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates of it."""
    return certificates(tmp_path_factory.mktemp("tls"))


def sent(signal: Signal) -> ServerAnswer:
    """Send an empty request of a signal, as the environment says."""
    client = transport(connection(os.environ, signal))
    try:
        return client.send(_REQUESTS[signal]())
    finally:
        client.close()


def heard(behavior: Misbehaving, signal: str) -> dict[str, str] | None:
    """Return the headers of the request of a signal that came."""
    if signal != "LOGS":
        return behavior.others.get(signal)
    return behavior.requests[-1].headers if behavior.requests else None


def option_of(name: str) -> tuple[Signal, str, str]:
    """Return the signal, the part of the name that is the signal's, and the option."""
    rest = name.removeprefix("OTEL_EXPORTER_OTLP_")
    for signal in SIGNALS:
        if rest.startswith(f"{signal}_"):
            return signal, f"{signal}_", rest.removeprefix(f"{signal}_")  # type: ignore[return-value]
    return "LOGS", "", rest


def test_the_page_is_the_table() -> None:
    """`docs/reference/otel-variables.md` is what `python -m tests.exporters.otel_variables` writes."""
    assert otel_variables.PAGE.read_text() == otel_variables.page()


def test_every_variable_is_in_the_table() -> None:
    """Those of OpenTelemetry's own packages, but for those that configure Python's global providers."""
    named = {
        value
        for module in (of_the_api, of_the_sdk)
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith("OTEL_")
    }
    here = {one.name for one in [*OTLP, *OTHERS]}

    assert {name for name in named - here if not name.startswith("OTEL_PYTHON_")} == set()


@both
@needs_program("openssl")
@pytest.mark.parametrize("name", [one.name for one in OTLP])
def test_an_option_of_otlp(name: str, protocol: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request comes as the variable says; that of the signal wins over the general one."""
    signal, of_signal, option = option_of(name)
    if option == "INSECURE" and protocol != "grpc":
        pytest.skip("HTTP has a scheme")
    secure = option in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
    mutual = option.startswith("CLIENT")
    slow = 2.0 if option == "TIMEOUT" else 0.0
    with collector(protocol, Say(slow=slow), tls=files if secure else None, mutual=mutual) as behavior:
        behavior.slow = slow
        path = "" if protocol == "grpc" or not of_signal else f"/v1/{signal.lower()}"
        values = {
            "ENDPOINT": behavior.endpoint + path,
            "PROTOCOL": protocol.upper(),
            "HEADERS": "x-one=1%2C2",
            "TIMEOUT": "600",
            "COMPRESSION": "gzip",
            "CERTIFICATE": str(files / "authority.pem"),
            "CLIENT_CERTIFICATE": str(files / "client.pem"),
            "CLIENT_KEY": str(files / "client.key"),
            "INSECURE": "true",
        }
        others = {"ENDPOINT": f"http://127.0.0.1:{free_port()}", "PROTOCOL": "http/json", "HEADERS": "x-one=0"}
        for general, value in (others | {"COMPRESSION": "none", "TIMEOUT": "60000"}).items():
            if of_signal:
                monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{general}", value)
        for needed in ("ENDPOINT", "PROTOCOL", option):
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{of_signal}{needed}", values[needed])
        if option == "INSECURE":
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{of_signal}ENDPOINT", behavior.endpoint.removeprefix("http://"))
        if mutual:
            for needed in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
                monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{of_signal}{needed}", values[needed])
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(files / "stranger.pem"))
        answer = sent(signal)
        headers = heard(behavior, signal)

    assert answer.verdict == ("later" if option == "TIMEOUT" else "taken"), answer
    assert headers is not None
    assert option != "TIMEOUT" or "0.6 s" in answer.message
    assert option != "HEADERS" or headers["x-one"] == "1,2"
    assert option != "COMPRESSION" or protocol == "grpc" or headers["content-encoding"] == "gzip"


def test_grpc_compresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `OTEL_EXPORTER_OTLP_COMPRESSION=gzip` sends over gRPC is small."""
    import socket
    import threading

    sizes = {}
    for compression in ("none", "gzip"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            received: list[bytes] = []

            def read(server: socket.socket = server, received: list[bytes] = received) -> None:
                near, _ = server.accept()
                near.sendall(b"\0\0\0\4\0\0\0\0\0")  # HTTP/2: settings
                while content := near.recv(1 << 16):
                    received.append(content)

            thread = threading.Thread(target=read, daemon=True)
            thread.start()
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
            request = ExportLogsServiceRequest()
            request.resource_logs.add().schema_url = "x" * 20_000
            client = transport(connection(os.environ, "LOGS"))
            client.send(request)
            client.close()
            thread.join(5)
            sizes[compression] = sum(map(len, received))

    assert sizes["none"] > 20_000
    assert sizes["gzip"] < 5000


def _metrics(name: str, value: str) -> OtlpMetricExporter:
    where = Connection(signal="METRICS", endpoint="http://127.0.0.1:1", secure=False)
    return OtlpMetricExporter(where, {name: value})


def _span(**limits: str) -> Any:
    event = SpanEvent("e", 1, {"a": 1, "b": 2})
    link = SpanLink("1" * 32, "2" * 16, {"a": 1, "b": 2})
    attributes: dict[str, Any] = {"a": "xyz", "b": 2}
    span = Span("s", "1" * 32, "2" * 16, "", 1, 2, attributes, events=(event, event), links=(link, link))
    return readable_spans([span], OtlpTraces(RUN)._resource, otel_environment.limits(limits))[0][1]


def _record(**limits: str) -> Any:
    event = Event("e", 1, {"a": "xyz", "b": 2})
    return readable_records([event], OtlpLogs(RUN)._resource, otel_environment.limits(limits))[0][1]


def _temporality() -> None:
    found = _metrics("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta")._preferred_temporality
    assert found == dict.fromkeys((Counter, ObservableCounter, Histogram), AggregationTemporality.DELTA)


def _histograms() -> None:
    name = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
    found = _metrics(name, "base2_exponential_bucket_histogram")._preferred_aggregation
    assert isinstance(found[Histogram], ExponentialBucketHistogramAggregation)


def _traces() -> None:
    found = otel_environment.otlp_exporters({"OTEL_TRACES_EXPORTER": "Console, otlp,otlp/stdout"})
    assert [name for name, _ in found] == ["console_traces", "otlp_traces", "otlp_stdout_traces"]


def _logs() -> None:
    found = otel_environment.otlp_exporters({"OTEL_LOGS_EXPORTER": "console"})
    assert [name for name, _ in found] == ["console_logs"]


def _readers() -> None:
    found = otel_environment.metric_readers({"OTEL_METRICS_EXPORTER": "console,prometheus,otlp,otlp/stdout,none"})
    assert [name for name, _ in found] == ["console", "prometheus", "otlp", "otlp_stdout"]


def _prometheus() -> None:
    environ = {"OTEL_EXPORTER_PROMETHEUS_HOST": "::1", "OTEL_EXPORTER_PROMETHEUS_PORT": "9999"}
    assert otel_environment.metric_readers(environ) == [("prometheus", {"host": "::1", "port": 9999})]


def _push(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "12345")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_TIMEOUT", "2345")
    reader = OtlpReader(RUN)
    MeterProvider([reader.reader]).shutdown()
    assert (reader.reader._export_interval_millis, reader.reader._export_timeout_millis) == (12345, 2345)


def _exemplars(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter

    from otel_rl.semconv.vocabulary import Vocabulary

    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", "always_on")
    instruments = OtelMetrics(RUN, [InMemoryMetricReader()], Vocabulary("auto"))
    found: Any = instruments._provider._sdk_config.exemplar_filter
    assert isinstance(found, AlwaysOnExemplarFilter)


def _disabled() -> None:
    environ = {"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}
    assert (otel_environment.metric_readers(environ), otel_environment.otlp_exporters(environ)) == ([], [])


def _resource() -> None:
    found = otel_environment.resource({"OTEL_RESOURCE_ATTRIBUTES": "a=1%2C2,service.name=x", "OTEL_SERVICE_NAME": "y"})
    assert (found["a"], found["service.name"]) == ("1,2", "y")
    assert "a" not in otel_environment.resource({"OTEL_RESOURCE_ATTRIBUTES": "a=1,b"})


def _detectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process")
    assert OtlpTraces(RUN)._resource.attributes["process.pid"] == os.getpid()


def _level() -> None:
    assert otel_environment.log_level({"OTEL_LOG_LEVEL": "Error"}) == logging.ERROR


def _sampler() -> None:
    environ = {"OTEL_TRACES_SAMPLER": "ParentBased_TraceIdRatio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    assert load({}, environ).traces.ratio == 0.25
    assert load({}, {"OTEL_TRACES_SAMPLER": "always_off"}).traces.ratio == 0
    assert load({}, environ | {"OTEL_TRACES_SAMPLER_ARG": "many"}).traces.ratio == 1
    assert load({}, {"OTEL_TRACES_SAMPLER": "jaeger_remote"}).traces.ratio == 1


def _attributes() -> None:
    span, record = _span(OTEL_ATTRIBUTE_COUNT_LIMIT="1"), _record(OTEL_ATTRIBUTE_COUNT_LIMIT="1")
    assert (len(span.attributes), span.dropped_attributes) == (1, 1)
    assert [len(one.attributes) for one in (*span.events, *span.links)] == [1, 1, 1, 1]
    assert (len(record.log_record.attributes), record.dropped_attributes) == (1, 1)


def _texts() -> None:
    assert _span(OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT="2").attributes["a"] == "xy"
    assert _record(OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT="2").log_record.attributes["a"] == "xy"


def _batches(name: str, signal: str) -> Callable[[], None]:
    def check() -> None:
        assert otel_environment.batch_size({name: "7"}, signal) == 7
        assert otel_environment.batch_size({name: "x"}, signal) == 512

    return check


CHECKS: dict[str, Callable[..., None]] = {
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": _temporality,
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": _histograms,
    "OTEL_TRACES_EXPORTER": _traces,
    "OTEL_METRICS_EXPORTER": _readers,
    "OTEL_LOGS_EXPORTER": _logs,
    "OTEL_EXPORTER_PROMETHEUS_HOST": _prometheus,
    "OTEL_EXPORTER_PROMETHEUS_PORT": _prometheus,
    "OTEL_METRIC_EXPORT_INTERVAL": _push,
    "OTEL_METRIC_EXPORT_TIMEOUT": _push,
    "OTEL_METRICS_EXEMPLAR_FILTER": _exemplars,
    "OTEL_SDK_DISABLED": _disabled,
    "OTEL_RESOURCE_ATTRIBUTES": _resource,
    "OTEL_SERVICE_NAME": _resource,
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": _detectors,
    "OTEL_LOG_LEVEL": _level,
    "OTEL_TRACES_SAMPLER": _sampler,
    "OTEL_TRACES_SAMPLER_ARG": _sampler,
    "OTEL_ATTRIBUTE_COUNT_LIMIT": _attributes,
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": _texts,
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": _batches("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "TRACES"),
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE": _batches("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "LOGS"),
}
_LIMITED: dict[str, Callable[[Any, Any], Any]] = {
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": lambda span, _: span.attributes,
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": lambda span, _: span.attributes["a"],
    "OTEL_SPAN_EVENT_COUNT_LIMIT": lambda span, _: span.events,
    "OTEL_SPAN_LINK_COUNT_LIMIT": lambda span, _: span.links,
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": lambda span, _: span.events[0].attributes,
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": lambda span, _: span.links[0].attributes,
    "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": lambda _, record: record.log_record.attributes,
    "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT": lambda _, record: record.log_record.attributes["a"],
}
"""The part of a span or an event that has one entry, or one character, if a variable is 1."""


@pytest.mark.parametrize("name", [one.name for one in OTHERS if one.works])
def test_another_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable that works has a check, and passes it."""
    if name in _LIMITED:
        assert len(_LIMITED[name](_span(**{name: "1"}), _record(**{name: "1"}))) == 1
        return
    check = CHECKS[name]
    check(*([monkeypatch] if check.__code__.co_argcount else []))


@pytest.mark.parametrize("signal", SIGNALS)
def test_an_exporter_that_is_not_known_is_ignored_with_a_warning(
    signal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`zipkin` and a misspelled name: `init` goes on, and the log lists what there is."""
    import otel_rl

    name = f"odd{signal.lower()}"
    monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", f"zipkin,{name}")
    with caplog.at_level(logging.WARNING):
        otel_rl.init(dir=tmp_path, exporters=[], agent="off", quiet=True).finish(0)

    assert any(f"OTEL_{signal}_EXPORTER: '{name}' is ignored; known are: console, " in text for text in caplog.messages)


INVALID = dict.fromkeys(otel_environment._RULES, "x") | {
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "-1",
    "OTEL_EXPORTER_PROMETHEUS_PORT": "99999",
    "OTEL_METRIC_EXPORT_INTERVAL": "-1",
    "OTEL_SDK_DISABLED": "yes",
}


def test_invalid_values_are_ignored_with_a_warning_that_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, in the trainer, which imports the SDK to check exporters, and in the agent."""
    from tests.processes import run_python

    script = """
import logging, os
import otel_rl
from otel_rl.recorder.directory import agent_start
logging.basicConfig(filename="warnings.log")
run = otel_rl.init(dir="runs", project="p", id="i", hardware=False, quiet=True, strict=True)
with run.step(0):
    run.log({"loss": 0.5})
assert run.finish(20)
agent_start.end_agents(20)
assert os.environ["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"] == "-1"
"""
    for name, value in INVALID.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    printed = run_python(script, tmp_path)

    assert '"name": "rl.loop"' in printed
    warnings = (tmp_path / "warnings.log").read_text()
    assert [name for name, value in INVALID.items() if f"{name}={value!r} is ignored: expected" not in warnings] == []


def test_choices_are_valid_in_any_case() -> None:
    """The SDK takes only lower case, so it is given that; the environment is as before afterwards."""
    environ = {"OTEL_METRICS_EXEMPLAR_FILTER": "ALWAYS_ON", "OTEL_PROPAGATORS": "tracecontext, baggage"}
    before = dict(environ)
    with otel_environment.only_valid(environ):
        assert environ == before | {"OTEL_METRICS_EXEMPLAR_FILTER": "always_on"}
    assert environ == before


def test_console_prints_all_three_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`console` and `otlp/stdout`: a span, an event and a metric are on standard output."""
    from tests.processes import run_python

    script = """
import otel_rl
run = otel_rl.init(dir="runs", project="p", id="i", exporters=[], hardware=False, quiet=True)
with run.step(0):
    run.log({"loss": 0.5})
assert run.finish(20)
otel_rl.recorder.directory.agent_start.end_agents(20)
"""
    for signal in SIGNALS:
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "console,otlp/stdout")
    printed = run_python("import otel_rl.recorder.directory.agent_start\n" + script, tmp_path)

    assert '"name": "rl.loop"' in printed
    assert '"event_name": "rl.step.metrics"' in printed
    assert '"name": "rl.train.loss"' in printed
    assert '{"resourceSpans":' in printed
    assert '{"resourceLogs":' in printed
    assert '{"resourceMetrics":' in printed
