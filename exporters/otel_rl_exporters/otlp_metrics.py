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

from otel_rl.errors.occasional import Occasional
from otel_rl.errors.sinks import log_of
from otel_rl.export import NotNow, Refused
from otel_rl.otlp.connection import one_of
from otel_rl_exporters.otlp_sender import Sender
from otel_rl_exporters.otlp_transport import transport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.otlp.connection import Connection

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

_One = tuple[ResourceMetrics, ScopeMetrics, Metric]


class OtlpMetricExporter(MetricExporter):
    """Sends what the reader collects, and retries until the timeout; cumulative values are in the next collection too.

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
        self._closing = threading.Event()
        self._warnings = Occasional(logger)
        self.failures = self.refused = 0
        self.causes: Counter[str] = Counter()
        self.last_error = ""

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> MetricExportResult:
        """Send metrics; return whether all of them were accepted."""
        waiting: list[_One] = [
            (resource, scope, metric)
            for resource in metrics_data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        deadline = time.monotonic() + timeout_millis / 1000
        pause, result = _FIRST_PAUSE_S, MetricExportResult.SUCCESS
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
                    return MetricExportResult.FAILURE
            else:
                break
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Do nothing: `export` sends before it returns."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Close the connection."""
        self._closing.set()
        self._sender.close()

    def _note(self, error_type: str, text: str) -> None:
        self.causes[error_type] += 1
        self.last_error = text
        self._warnings.warn(f"otlp metrics: {text}")


def _encoded(metrics: Sequence[_One]) -> Any:
    """Return a request with these metrics, each within its resource and its scope."""
    resources: dict[int, ResourceMetrics] = {}
    scopes: dict[int, ScopeMetrics] = {}
    for resource, scope, metric in metrics:
        if id(resource) not in resources:
            resources[id(resource)] = ResourceMetrics(resource.resource, [], resource.schema_url)
        if id(scope) not in scopes:
            scopes[id(scope)] = ScopeMetrics(scope.scope, [], scope.schema_url)
            cast("list[ScopeMetrics]", resources[id(resource)].scope_metrics).append(scopes[id(scope)])
        cast("list[Metric]", scopes[id(scope)].metrics).append(metric)
    return encode_metrics(MetricsData(list(resources.values())))
