"""A series that ends is ended at the receiver of OTLP: one point without a recorded value, then nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from otel_rl.analysis import Point
from otel_rl.export import Row, RunInfo, Span
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.recorder.otlp.connection import Connection
from otel_rl.semconv.vocabulary import Vocabulary
from otel_rl_exporters import ended_series
from otel_rl_exporters.otlp_metrics import OtlpMetricExporter
from tests.exporters.metrics_receiver import Receiver, receiving

_OPEN = "rl.phase.open.time"
_WHERE = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_HISTOGRAMS = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"


class Sending:
    """Instruments whose metrics go to a receiver when the test says so."""

    def __init__(self, receiver: Receiver, **environ: str) -> None:
        where = Connection(signal="METRICS", endpoint=f"{receiver.endpoint}/v1/metrics", secure=False)
        self.exporter = OtlpMetricExporter(where, environ)
        self._reader = PeriodicExportingMetricReader(self.exporter, math.inf)
        self.instruments = OtelMetrics(RunInfo("i", "p", "n", "."), [self._reader], Vocabulary("auto"))
        self.instruments.show_points("host", [Point("system.cpu.utilization", 0.5)])  # otherwise nothing is sent

    def phase(self, *names: str) -> None:
        """Open phases, and close the others."""
        self.instruments.show_points("presence", [Point(_OPEN, 1.0, (("rl.phase", name),)) for name in names])

    def send(self) -> None:
        """Collect and send."""
        self._reader.collect()


@contextlib.contextmanager
def sending(*statuses: int, **environ: str) -> Iterator[tuple[Receiver, Sending]]:
    """Run a receiver, and instruments that send to it."""
    with receiving(*statuses) as receiver:
        sent = Sending(receiver, **environ)
        yield receiver, sent
        sent.instruments.shutdown(5)


def test_one_end_for_each_series_then_nothing() -> None:
    """A phase that was closed; the open one has its value."""
    with sending() as (receiver, sent):
        for names in (("generate", "train"), ("train",), ("train",)):
            sent.phase(*names)
            sent.send()

        assert receiver.points(_OPEN) == [
            [("generate", 1.0), ("train", 1.0)],
            [("train", 1.0), ("generate", "ended")],
            [("train", 1.0)],
        ]


def test_each_end_has_a_metric_of_its_own() -> None:
    """The Collector's `prometheus` exporter reads a metric up to its first end, and ignores the points after it."""
    with sending() as (receiver, sent):
        for names in (("generate", "train"), ()):
            sent.phase(*names)
            sent.send()
        (scope,) = [scope for one in receiver.accepted[-1].resource_metrics for scope in one.scope_metrics][1:]

        assert [len(metric.gauge.data_points) for metric in scope.metrics if metric.name == _OPEN] == [1, 1]


def test_a_value_that_is_not_a_number_ends_its_series() -> None:
    """It has no series on a scraped page either."""
    with sending() as (receiver, sent):
        for value in (0.5, math.nan):
            sent.instruments.show([Row(0, 0, {"x": value})])
            sent.send()

        assert receiver.points("rl.metric") == [[("x", 0.5)], [("x", "ended")]]


def test_an_end_that_did_not_arrive_is_sent_again() -> None:
    """With the next collection, also after further phases have ended."""
    with sending() as (receiver, sent):
        sent.phase("generate", "train")
        sent.send()
        receiver.statuses.append(503)
        sent.phase("train")
        sent.send()
        sent.phase()
        sent.send()
        sent.send()

        assert receiver.points(_OPEN)[1:] == [[("generate", "ended"), ("train", "ended")], []]


def test_a_series_that_returns_has_not_ended() -> None:
    """Although its end did not arrive before."""
    with sending() as (receiver, sent):
        sent.phase("generate")
        sent.send()
        receiver.statuses.append(503)
        sent.phase()
        sent.send()
        sent.phase("generate")
        sent.send()

        assert receiver.points(_OPEN) == [[("generate", 1.0)], [("generate", 1.0)]]


def test_all_series_end_with_the_agent() -> None:
    """After their last values, later than these; of a histogram, each bucket."""
    with sending() as (receiver, sent):
        sent.phase("generate")
        sent.instruments.show_phases([Span("gen", "", "", "", 0, 10**9, {"rl.phase": "gen", "rl.rank": 0})])
        sent.send()
        sent.instruments.shutdown(5)

        values, ends = receiver.accepted
        last = {m.name: m for r in values.resource_metrics for s in r.scope_metrics for m in s.metrics}
        final = {m.name: m for r in ends.resource_metrics for s in r.scope_metrics for m in s.metrics}
        assert set(final) == set(last)
        assert ends.resource_metrics[0].resource == values.resource_metrics[0].resource
        for name, metric in final.items():
            points = getattr(metric, metric.WhichOneof("data")).data_points
            before = getattr(last[name], metric.WhichOneof("data")).data_points
            assert all(point.flags == 1 for point in points)
            assert [p.attributes for p in points] == [p.attributes for p in before]
            assert min(p.time_unix_nano for p in points) // 10**6 > max(p.time_unix_nano for p in before) // 10**6
        (histogram,) = final["rl.phase.duration"].histogram.data_points
        assert len(histogram.bucket_counts) == len(histogram.explicit_bounds) + 1 == 17
        assert final[_OPEN].gauge.data_points[0].WhichOneof("value") is None


def test_exponential_histograms_end_too() -> None:
    """Without buckets, which have no series of their own."""
    with sending(**{_HISTOGRAMS: "base2_exponential_bucket_histogram"}) as (receiver, sent):
        sent.instruments.show_phases([Span("gen", "", "", "", 0, 10**9, {"rl.phase": "gen", "rl.rank": 0})])
        sent.send()
        sent.instruments.shutdown(5)

        assert receiver.points("rl.phase.duration") == [[("gen,host", 1)], [("gen,host", "ended")]]


def test_no_end_before_the_last_value() -> None:
    """A receiver that did not get the last values gets no ends, which would be all that it sees."""
    with sending(503) as (receiver, sent):
        sent.phase("generate")
        sent.send()
        sent.instruments.shutdown(5)

        assert receiver.accepted == []


def test_refused_ends_are_not_sent_again() -> None:
    """A receiver that does not know such points must not refuse every request from then on."""
    with sending() as (receiver, sent):
        sent.phase("generate")
        sent.send()
        receiver.statuses.append(400)
        sent.phase()
        sent.send()
        sent.send()

        assert receiver.points(_OPEN) == [[("generate", 1.0)], []]


def test_deltas_have_no_ends() -> None:
    """A series of deltas has a point only if something was added."""
    with sending(**{_WHERE: "delta"}) as (receiver, sent):
        sent.instruments.show([Row(0, 0, {"x": math.nan})])
        sent.send()
        sent.send()

        assert receiver.points("rl.numerics.nonfinite") == [[("x", 1)], []]


def test_ends_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped in a long outage, and counted."""
    monkeypatch.setattr(ended_series, "_MOST_WAITING", 2)
    with sending() as (receiver, sent):
        sent.phase("a", "b", "c")
        sent.send()
        receiver.statuses.append(503)
        sent.phase()
        sent.send()
        sent.send()

        assert receiver.points(_OPEN)[1:] == [[("b", "ended"), ("c", "ended")]]
        assert sent.exporter.causes["series_limit"] == 1
        sent.instruments.shutdown(5)
