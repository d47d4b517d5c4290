"""OTel instruments: the latest view of the run, for Prometheus and for OTLP metrics.

Gauges are observable and read from a table, so that a value that is NaN leaves the scrape instead of
showing the last good one for ever.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource

from otel_rl import semconv
from otel_rl.export import Event, Row, Span
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions
    from opentelemetry.sdk.metrics.export import MetricReader

    from otel_rl.agent.state import Journal
    from otel_rl.export import Item, RunInfo

_SECONDS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 3600]
_MOST_NAMES = 1000  # of metrics that no dialect knows: each is a series

Attributes = tuple[tuple[str, str | int], ...]


class Instruments:
    """All instruments of the registry, fed with what the reducer makes.

    Args:
        run: Whose metrics they are.
        readers: The SDK's metric readers.
        dialect: Which framework's metric names to expect.
    """

    def __init__(self, run: RunInfo, readers: Sequence[MetricReader], dialect: str) -> None:
        self._provider = MeterProvider(readers, resource=Resource.create(dict(run.resource)), shutdown_on_exit=False)
        self._meanings = registry.dialect(dialect)
        self._lock = threading.Lock()
        self._gauges: dict[str, dict[Attributes, float]] = defaultdict(dict)
        self._totals: dict[str, dict[Attributes, int]] = defaultdict(dict)
        self._names: set[str] = set()
        self._histograms: dict[str, metrics.Histogram] = {}
        self._counters: dict[str, metrics.Counter] = {}
        self._create()

    def show(self, items: Iterable[Item]) -> None:
        """Take in the rows, step spans and events that the reducer made."""
        for item in items:
            if isinstance(item, Row):
                self._show_row(item)
            elif isinstance(item, Span) and item.name == semconv.SPAN_LOOP:
                self._histograms[semconv.METRIC_LOOP_DURATION].record(_seconds(item))
                self._counters[semconv.METRIC_TRAIN_STEPS].add(1)
            elif isinstance(item, Event) and item.name == semconv.PROCESS_LOST:
                self._counters[semconv.METRIC_PROCESSES_LOST].add(1, {semconv.RANK: item.rank or 0})

    def show_phases(self, spans: Iterable[Span]) -> None:
        """Take in phases, as soon as they end: a step may last for long."""
        for span in spans:
            who = {name: span.attributes[name] for name in (semconv.RANK, semconv.ROLE) if name in span.attributes}
            phase = {semconv.PHASE: span.attributes[semconv.PHASE], semconv.CLOCK: "host"}
            self._histograms[semconv.METRIC_PHASE_DURATION].record(_seconds(span), who | phase)
            if (stage := f"{span.name}.duration") in self._histograms:
                self._histograms[stage].record(_seconds(span), who)

    def show_journals(self, journals: Iterable[Journal]) -> None:
        """Take in what is known of the processes: when they were heard of, their memory, what they refused."""
        refusals: Counter[Attributes] = Counter()
        with self._lock:
            for journal in journals:
                who = _who(journal.started.rank, journal.started.role)
                if journal.step_ended_at:
                    self._gauges[semconv.METRIC_STEP_LAST_COMPLETED][who] = journal.step_ended_at / 1e9
                if journal.resident:
                    self._gauges[semconv.METRIC_PROCESS_MEMORY][who] = journal.resident
                    self._gauges[semconv.METRIC_PROCESS_VIRTUAL_MEMORY][who] = journal.virtual
                for reason, count in journal.refusals.items():
                    of_reason: Attributes = (*who, (semconv.ERROR_TYPE, reason))
                    refusals[of_reason] += count
            self._totals[semconv.METRIC_REFUSED].update(refusals)

    def show_totals(self, metric: str, attribute: str, totals: Mapping[str, int]) -> None:
        """Set the counters of `metric`, one for each value of the attribute."""
        with self._lock:
            for value, total in totals.items():
                self._totals[metric][((attribute, value),)] = total

    def shutdown(self, timeout_s: float) -> None:
        """Push what is to be pushed once more, and end."""
        self._provider.shutdown(timeout_millis=timeout_s * 1000)

    def _create(self) -> None:
        meter = self._provider.get_meter("otel_rl")
        observed = {semconv.METRIC_REFUSED, semconv.METRIC_DROPPED, semconv.METRIC_DELIVERED, semconv.METRIC_FAILURES}
        for name, metric in registry.metrics().items():
            if metric.instrument == "histogram":
                self._histograms[name] = meter.create_histogram(
                    name, metric.unit, metric.brief, explicit_bucket_boundaries_advisory=_SECONDS
                )
            elif name in observed:
                meter.create_observable_counter(name, [self._callback(self._totals[name])], metric.unit, metric.brief)
            elif metric.instrument == "counter":
                self._counters[name] = meter.create_counter(name, metric.unit, metric.brief)
            else:
                meter.create_observable_gauge(name, [self._callback(self._gauges[name])], metric.unit, metric.brief)

    def _callback(self, table: Mapping[Attributes, float]) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            with self._lock:
                return [Observation(value, dict(key)) for key, value in table.items() if math.isfinite(value)]

        return observe

    def _show_row(self, row: Row) -> None:
        with self._lock:
            if not row.late:
                self._gauges[semconv.METRIC_STEP_CURRENT][()] = row.step
            for name, value in row.values.items():
                self._show_value(name, value)
        for name, value in row.values.items():
            if not math.isfinite(value):
                self._counters[semconv.METRIC_NONFINITE].add(1, {semconv.LOGGED_NAME: name})

    def _show_value(self, name: str, value: float) -> None:
        meaning = self._meanings.get(name)
        if meaning is not None:
            self._gauges[meaning.metric][tuple(meaning.attributes.items())] = value
        elif (known := registry.metrics().get(name)) is not None and known.instrument == "gauge":
            self._gauges[name][()] = value
        elif name in self._names or len(self._names) < _MOST_NAMES:
            self._names.add(name)
            self._gauges[semconv.METRIC_ANY][((semconv.LOGGED_NAME, name),)] = value
        else:
            overflow: Attributes = ((semconv.ERROR_TYPE, "metric_names"),)
            self._totals[semconv.METRIC_DROPPED][overflow] = self._totals[semconv.METRIC_DROPPED].get(overflow, 0) + 1


def _seconds(span: Span) -> float:
    return (span.end_unix_nano - span.start_unix_nano) / 1e9


def _who(rank: int, role: str) -> Attributes:
    return ((semconv.RANK, rank), (semconv.ROLE, role)) if role else ((semconv.RANK, rank),)
