"""Metrics by OTLP: the SDK's reader collects them, the client of the other signals sends them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import Counter as SdkCounter
from opentelemetry.sdk.metrics import Histogram, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.view import Aggregation, ExponentialBucketHistogramAggregation

from otel_rl.export import NotNow, Refused
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.otlp.connection import one_of
from otel_rl_exporters.ended_series import KnownSeries, One, without_values
from otel_rl_exporters.otlp_sender import Sender
from otel_rl_exporters.otlp_transport import transport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    from otel_rl.recorder.otlp.connection import Connection

logger = log_of(__name__)
_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_HISTOGRAMS = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
_DELTAS: dict[str, tuple[type, ...]] = {
    "cumulative": (),
    "delta": (SdkCounter, ObservableCounter, Histogram),
    "lowmemory": (SdkCounter, Histogram),
}
_AGGREGATIONS: dict[str, dict[type, Aggregation]] = {
    "explicit_bucket_histogram": {},
    "base2_exponential_bucket_histogram": {Histogram: ExponentialBucketHistogramAggregation()},
}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0
_dice = random.Random()


class OtlpMetricExporter(MetricExporter):
    """Sends what the reader collects, and retries until the timeout; cumulative values are in the next collection too.

    A series that is not collected any more ends at the receiver. When the exporter is shut down, all of them end.

    Attributes:
        failures: How often a request failed.
        causes: How often each type of error occurred, refusals included.
        refused: How many metrics the collector refused.
        last_error: The message of the last error.
    """

    def __init__(self, where: Connection, environ: Mapping[str, str]) -> None:
        deltas = _DELTAS[one_of(_TEMPORALITY, environ.get(_TEMPORALITY, ""), tuple(_DELTAS))]
        aggregation = one_of(_HISTOGRAMS, environ.get(_HISTOGRAMS, ""), tuple(_AGGREGATIONS))
        super().__init__(
            preferred_temporality=dict.fromkeys(deltas, AggregationTemporality.DELTA),
            preferred_aggregation=_AGGREGATIONS[aggregation],
        )
        self._sender = Sender(transport(where), _encoded)
        self._series = KnownSeries()
        self._closing = threading.Event()
        self._sending = threading.Lock()
        self._is_behind = False
        self._warnings = Occasional(logger)
        self.failures = self.refused = 0
        self.causes: Counter[str] = Counter()
        self.last_error = ""

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> MetricExportResult:
        """Send metrics; return whether all of them were accepted."""
        collected = [
            One(resource, scope, metric)
            for resource in metrics_data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        with self._sending:
            return self._send(collected, time.monotonic() + timeout_millis / 1000)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Do nothing: `export` sends before it returns."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, timeout: float | None = None, **_: Any) -> None:
        """End all series, if their last values were sent, and close the connection; the SDK passes `timeout` in ms."""
        deadline = time.monotonic() + (timeout_millis if timeout is None else timeout) / 1000
        # Before the lock: an export that waits for its next retry holds it, and would use up the time of the shutdown.
        self._closing.set()
        if self._sending.acquire(timeout=max(0.0, deadline - time.monotonic())):
            try:
                # A receiver that lacks the last values would see nothing of the series but ends
                # (tests/exporters/test_ended_series.py).
                if not self._is_behind:
                    self._send([], deadline)
            finally:
                self._sending.release()
        self._sender.close()

    def _send(self, collected: list[One], deadline: float) -> MetricExportResult:
        """Send metrics, and the ends of the series that are not among them, until a deadline."""
        ends = self._series.ends(collected)
        if self._series.dropped:
            self.causes["series_limit"] = self._series.dropped
        waiting = [*collected, *ends]
        pause, result = _FIRST_PAUSE_S, MetricExportResult.SUCCESS
        self._is_behind = False
        while waiting:
            try:
                self._sender.send(list(enumerate(waiting)), len(waiting))
            except Refused as error:
                done = len(waiting) if error.done is None else error.done
                self.refused += error.count or 0
                self._note(error.error_type, f"refused: {error}")
                result, waiting = MetricExportResult.FAILURE, waiting[done:]
            except NotNow as error:
                self.failures += 1
                self._note(error.error_type, str(error))
                waiting = waiting[error.done :]
                asked = error.retry_after or pause * _dice.uniform(0.75, 1.25)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                if time.monotonic() + asked > deadline or self._closing.wait(asked):
                    self._is_behind = True
                    result = MetricExportResult.FAILURE
                    break
            else:
                waiting = []
        self._series.arrived(ends[: max(0, len(ends) - len(waiting))])  # the ends come last
        return result

    def _note(self, error_type: str, text: str) -> None:
        self.causes[error_type] += 1
        self.last_error = text
        self._warnings.warn(f"otlp metrics: {text}")


def _encoded(metrics: Sequence[One]) -> Any:
    """Return a request with these metrics, each within its resource and its scope."""
    # The SDK cannot encode a point without a value: the ends are encoded as usual, and marked in the request.
    request = encode_metrics(_grouped(metric for metric in metrics if not metric.has_ended))
    request.MergeFrom(without_values(encode_metrics(_grouped(metric for metric in metrics if metric.has_ended))))
    return request


def _grouped(metrics: Iterable[One]) -> MetricsData:
    resources: dict[Resource, ResourceMetrics] = {}
    scopes: dict[tuple[Resource, InstrumentationScope], ScopeMetrics] = {}
    for resource, scope, metric, _ in metrics:
        place = resource.resource, scope.scope
        if place not in scopes:
            within = resources.setdefault(place[0], ResourceMetrics(place[0], [], resource.schema_url))
            scopes[place] = ScopeMetrics(scope.scope, [], scope.schema_url)
            cast("list[ScopeMetrics]", within.scope_metrics).append(scopes[place])
        cast("list[Metric]", scopes[place].metrics).append(metric)
    return MetricsData(list(resources.values()))
