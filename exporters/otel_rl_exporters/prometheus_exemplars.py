"""Exemplars on scraped pages: OTel's pull reader does not pass them on to Prometheus's client.

Only the OpenMetrics format has exemplars. Prometheus asks for it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import Histogram
from opentelemetry.trace import format_span_id, format_trace_id
from prometheus_client.samples import Exemplar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from opentelemetry.sdk.metrics.export import MetricsData
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.samples import Sample


class ExemplarReader(PrometheusMetricReader):
    """OTel's pull reader; `histograms` has the points of the last collection, by name on the page without unit."""

    def __init__(self, **options: Any) -> None:
        self.histograms: dict[str, Sequence[Any]] = {}
        super().__init__(**options)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        resources = metrics_data.resource_metrics if metrics_data else ()
        metrics = [metric for resource in resources for scope in resource.scope_metrics for metric in scope.metrics]
        self.histograms = {
            re.sub(r"\W", "_", metric.name): metric.data.data_points
            for metric in metrics
            if isinstance(metric.data, Histogram)
        }
        super()._receive_metrics(metrics_data, timeout_millis, **kwargs)


class WithExemplars:
    """The metrics of a registry, where each bucket of a histogram has the last exemplar that was recorded in it."""

    def __init__(self, metrics: CollectorRegistry, reader: ExemplarReader) -> None:
        self._metrics, self._reader = metrics, reader
        self._last: dict[tuple[str, frozenset[tuple[str, str]]], Exemplar] = {}

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics."""
        for family in self._metrics.collect():
            name = family.name.removesuffix(f"_{family.unit}")
            exemplars = list(_of_buckets(self._reader.histograms.get(name, ())))
            buckets = (
                [n for n, sample in enumerate(family.samples) if sample.name.endswith("_bucket")] if exemplars else []
            )
            if len(buckets) == len(exemplars):
                for n, exemplar in zip(buckets, exemplars, strict=True):
                    family.samples[n] = self._with(family.samples[n], exemplar)
            yield family

    def _with(self, sample: Sample, exemplar: Exemplar | None) -> Sample:
        key = sample.name, frozenset(sample.labels.items())
        if exemplar is not None:
            self._last[key] = exemplar
        return sample._replace(exemplar=self._last.get(key))


def _of_buckets(points: Iterable[Any]) -> Iterator[Exemplar | None]:
    """Yield the newest exemplar of each bucket, in the order of the samples."""
    for point in points:
        exemplars: list[Exemplar | None] = [None] * len(point.bucket_counts)
        for exemplar in point.exemplars:
            if exemplar.trace_id is not None:
                ids = {"trace_id": format_trace_id(exemplar.trace_id), "span_id": format_span_id(exemplar.span_id)}
                at = bisect_left(point.explicit_bounds, exemplar.value)
                exemplars[at] = Exemplar(ids, exemplar.value, exemplar.time_unix_nano / 1e9)
        yield from exemplars
