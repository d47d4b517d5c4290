"""The ends of series over OTLP: data points without a recorded value, as OTLP's data model has them.

Prometheus and the Collector drop a series at such a point. Without it they keep the last value for 5 minutes.
The SDK does not make these points.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags
from opentelemetry.sdk.metrics.export import AggregationTemporality, Metric, ResourceMetrics, ScopeMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_WAITING = 10_000
"""Maximum number of ends that are retried: in a long outage the receiver drops the series by itself."""
_MS = 1_000_000
_Key = tuple[str, frozenset[tuple[str, Any]]]


class One(NamedTuple):
    """A metric within its resource and its scope; if `has_ended`, its points are the ends of series."""

    resource: ResourceMetrics
    scope: ScopeMetrics
    metric: Metric
    has_ended: bool = False


class KnownSeries:
    """The series that a receiver knows, and those that have ended and of which it may not know it yet.

    Attributes:
        dropped: How many ends were dropped because too many waited.
    """

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[One, Any]] = {}
        self._ended: dict[_Key, tuple[One, Any]] = {}
        self.dropped = 0

    def ends(self, collected: Iterable[One]) -> list[One]:
        """Return the ends of the series that are not collected any more; each one again until it has `arrived`."""
        for key in list(self._ended)[: max(0, len(self._ended) - _MOST_WAITING)]:
            del self._ended[key]
            self.dropped += 1
        before = self._known
        self._known = {key: (metric, point) for metric in collected for key, point in _points(metric)}
        self._ended = {k: v for k, v in (self._ended | before).items() if k not in self._known}
        # The Collector's Prometheus exporter reads a metric up to its first end, so each end is a metric of its own.
        return [
            metric._replace(metric=_with(metric.metric, [_end(last)]), has_ended=True)
            for metric, last in self._ended.values()
        ]

    def arrived(self, ends: Iterable[One]) -> None:
        """Remove series whose ends the receiver has."""
        for ended in ends:
            for key, _ in _points(ended):
                self._ended.pop(key, None)


def without_values(request: Any) -> Any:
    """Mark all data points of a request for metrics as having no recorded value, and return it."""
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    point.flags |= DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
                    if hasattr(point, "as_double"):  # histograms keep their bounds: each bucket is a series
                        point.ClearField("as_double")
                        point.ClearField("as_int")
    return request


def _points(one: One) -> Iterator[tuple[_Key, Any]]:
    """Yield the points of a metric; none if they are deltas, whose series end with each collection."""
    if getattr(one.metric.data, "aggregation_temporality", None) != AggregationTemporality.DELTA:
        for point in one.metric.data.data_points:
            yield (one.metric.name, frozenset((point.attributes or {}).items())), point


def _end(last: Any) -> Any:
    """Return the point after the last one; Prometheus counts in milliseconds."""
    return replace(last, time_unix_nano=max(time.time_ns(), last.time_unix_nano + _MS), exemplars=[])


def _with(metric: Metric, points: list[Any]) -> Metric:
    data: Any = metric.data
    return replace(metric, data=replace(data, data_points=points))
