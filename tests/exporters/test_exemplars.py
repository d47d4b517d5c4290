"""Exemplars: durations of steps and phases point to traces that are kept, on scraped pages and over OTLP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from otel_rl.export import RunInfo, Span
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.recorder.otlp.connection import Connection
from otel_rl.semconv.vocabulary import Vocabulary
from otel_rl_exporters.otlp_metrics import OtlpMetricExporter
from otel_rl_exporters.prometheus import PrometheusReader
from tests.exporters.metrics_receiver import receiving

_OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
RUN = RunInfo("i", "p", "n", ".")


def phase(number: int, seconds: float, name: str = "generate") -> Span:
    ids = f"{number:032x}", f"{number:016x}"
    return Span("gen", *ids, "", 0, round(seconds * 1e9), {"rl.phase": name, "rl.rank": 0})


@pytest.fixture
def reader() -> Iterator[PrometheusReader]:
    reader = PrometheusReader(RUN, port=0)
    yield reader
    reader.shutdown()


def page(reader: PrometheusReader, accept: str = _OPEN_METRICS) -> str:
    with urlopen(Request(reader.address or "", headers={"Accept": accept})) as answer:
        return str(answer.read().decode())


def exemplars(text: str) -> dict[tuple[str, str], tuple[int, float]]:
    """Return trace and value of the exemplar of each bucket that has one, by phase and upper bound."""
    return {
        (sample.labels["rl_phase"], sample.labels["le"]): (int(found.labels["trace_id"], 16), found.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if (found := sample.exemplar) is not None and family.name == "rl_phase_duration_seconds"
    }


def test_buckets_of_a_scraped_page_have_exemplars(reader: PrometheusReader) -> None:
    """The newest one in each bucket of each series, also on the next page."""
    shown = OtelMetrics(RUN, [reader.reader], Vocabulary("auto"))
    for span in (phase(1, 0.5), phase(2, 0.6), phase(3, 50), phase(4, 1, "reward")):
        shown.show_phases([span], lambda _: True)
    first = exemplars(page(reader))
    shown.show_phases([phase(5, 0.7)], lambda _: True)

    assert first == {
        ("generate", "1"): (2, 0.6),
        ("generate", "60"): (3, 50.0),
        ("reward", "1"): (4, 1.0),
    }
    assert exemplars(page(reader)) == {**first, ("generate", "1"): (5, 0.7)}


def test_traces_that_are_not_kept_have_none(reader: PrometheusReader) -> None:
    """A link to them would lead nowhere."""
    shown = OtelMetrics(RUN, [reader.reader], Vocabulary("auto"))
    shown.show_phases([phase(1, 0.5), phase(2, 0.5)], lambda trace: int(trace, 16) == 1)

    assert exemplars(page(reader)) == {("generate", "1"): (1, 0.5)}


def test_the_older_format_has_no_exemplars(reader: PrometheusReader) -> None:
    """Its readers would not understand the lines."""
    shown = OtelMetrics(RUN, [reader.reader], Vocabulary("auto"))
    shown.show_phases([phase(1, 0.5)], lambda _: True)

    assert "trace_id" not in page(reader, "text/plain;version=0.0.4")
    assert 'rl_phase_duration_seconds_bucket{le="1"' in page(reader, "text/plain;version=0.0.4")


def test_exemplars_over_otlp() -> None:
    """Those of phases and of steps."""
    with receiving() as receiver:
        where = Connection(signal="METRICS", endpoint=f"{receiver.endpoint}/v1/metrics", secure=False)
        pushing = PeriodicExportingMetricReader(OtlpMetricExporter(where, {}), float("inf"))
        shown = OtelMetrics(RUN, [pushing], Vocabulary("auto"))
        shown.show_phases([phase(1, 0.5)], lambda _: True)
        loop = Span("rl.loop", f"{2:032x}", f"{2:016x}", "", 0, 10**9, {})
        shown.show([loop], lambda _: True)
        pushing.collect()
        shown.shutdown(5)
        found = {name: ids for one in receiver.accepted for name, ids in _traces(one)}

    assert found == {"rl.phase.duration": [1], "rl.loop.duration": [2]}


def _traces(request: ExportMetricsServiceRequest) -> Iterator[tuple[str, list[int]]]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points: Any = metric.histogram.data_points
                if ids := [int.from_bytes(e.trace_id, "big") for point in points for e in point.exemplars]:
                    yield metric.name, ids
