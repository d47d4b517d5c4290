"""OTel instruments: the latest view of the run, for Prometheus and for OTLP metrics.

Gauges and UpDownCounters are observable and read from a table, so that a NaN removes the series from the
scrape; otherwise the last good value would stay.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource

from otel_rl import semconv
from otel_rl.analysis import Attributes, Point
from otel_rl.export import Event, Row, Span
from otel_rl.recorder.agent.output import exemplars, presence
from otel_rl.recorder.convert.known_names import OTHER, KnownNames
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions
    from opentelemetry.sdk.metrics.export import MetricReader

    from otel_rl.export import Item, RunInfo
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.journal.records import DeviceMemory
    from otel_rl.semconv.vocabulary import Vocabulary

_SECONDS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 3600]
_MOST_SERIES = 2000  # of what is logged
_MOST_PHASES = 200  # each, with its parts, has 19 series, and one more per rank


def _no_trace(_: str) -> bool:
    return False


class OtelMetrics:
    """All instruments of the registry, fed with the output of the reducer, for the SDK's metric readers."""

    def __init__(self, run: RunInfo, readers: Sequence[MetricReader], vocabulary: Vocabulary) -> None:
        # Not at exit: the agent shuts it down itself, with a limit, and an `atexit` of the SDK could hang the end of
        # the process.
        self._provider = MeterProvider(readers, resource=Resource.create(dict(run.resource)), shutdown_on_exit=False)
        self._vocabulary = vocabulary
        self._chosen = vocabulary.chosen
        self._of_rows: dict[tuple[str, Attributes], _Series] = {}
        self._series: dict[str, _Series] = {}
        self._rows = 0
        self._lock = threading.Lock()
        self._gauges: dict[str, dict[Attributes, float]] = defaultdict(dict)
        self._totals: dict[str, dict[Attributes, float]] = defaultdict(dict)
        self._histograms: dict[str, metrics.Histogram] = {}
        self._counters: dict[str, metrics.Counter] = {}
        self._of_probes: dict[str, set[tuple[str, Attributes]]] = {}
        self._devices: dict[int, str] = {}
        self._processes: set[Attributes] = set()
        self._phases = KnownNames("phases and parts of phases", _MOST_PHASES)
        self._create()

    def show(self, items: Iterable[Item], keeps: Callable[[str], bool] = _no_trace) -> None:
        """Add the rows, step spans and events of the reducer; exemplars point to traces that are kept."""
        for item in items:
            if isinstance(item, Row):
                self._show_row(item)
            elif isinstance(item, Span) and item.name == semconv.SPAN_LOOP:
                context = exemplars.context(item, kept=keeps(item.trace_id))
                self._histograms[semconv.METRIC_LOOP_DURATION].record(_seconds(item), context=context)
                self._counters[semconv.METRIC_TRAIN_STEPS].add(1)
            elif isinstance(item, Event) and item.name == semconv.EVENT_PROCESS_LOST:
                who = _who(item.rank or 0, str(item.attributes.get(semconv.ROLE, "")))
                self._counters[semconv.METRIC_PROCESSES_LOST].add(1, dict(who))
            elif isinstance(item, Event) and item.name == semconv.EVENT_TRAINING_ANOMALY:
                of_metric = {key: str(item.attributes[key]) for key in (semconv.ANOMALY_KIND, semconv.METRIC_NAME)}
                self._counters[semconv.METRIC_TRAINING_ANOMALIES].add(1, of_metric)

    def show_phases(self, spans: Iterable[Span], keeps: Callable[[str], bool] = _no_trace) -> None:
        """Add phases as soon as they end: a step may take long."""
        for span in spans:
            which = _some(span, semconv.ROLE, semconv.PHASE_PART, semconv.CLOCK)
            name = self._vocabulary.phase(str(span.attributes[semconv.PHASE]))
            if not self._phases.admits(f"{name}/{which.get(semconv.PHASE_PART, '')}"):
                name = OTHER
                which.pop(semconv.PHASE_PART, None)
                with self._lock:
                    self._drop_series()
            phase = {semconv.PHASE: name, semconv.CLOCK: "host", **which}
            context = exemplars.context(span, kept=keeps(span.trace_id)) if span.trace_id else None
            self._histograms[semconv.METRIC_PHASE_DURATION].record(_seconds(span), phase, context)
            if (stage := f"{span.name}.duration") in self._histograms:
                self._histograms[stage].record(_seconds(span), _some(span, semconv.ROLE), context)
            if phase[semconv.CLOCK] == "host" and semconv.PHASE_PART not in phase and name != OTHER:
                # One series per rank: a histogram would have 19.
                who = tuple(sorted({semconv.PHASE: name, **_some(span, semconv.RANK, semconv.ROLE)}.items()))
                with self._lock:
                    self._gauges[semconv.METRIC_RANK_PHASE_TIME][who] = _seconds(span)

    def show_trajectories(self, items: Iterable[Item], keeps: Callable[[str], bool] = _no_trace) -> None:
        """Add the trajectories among the items; exemplars point to traces that are kept."""
        histogram = self._histograms[semconv.METRIC_TRAJECTORY_DURATION]
        for item in items:
            if isinstance(item, Span) and item.name == semconv.SPAN_TRAJECTORY and not item.parent_id:
                context = exemplars.context(item, kept=keeps(item.trace_id))
                histogram.record(_seconds(item), _some(item, semconv.ROLE), context)

    def show_processes(self, journals: Iterable[Journal]) -> None:
        """Count no loss of each process: `rate()` needs a counter to exist before it rises."""
        for journal in journals:
            who = _who(journal.started.rank, journal.started.role)
            if who not in self._processes:
                self._processes.add(who)
                self._counters[semconv.METRIC_PROCESSES_LOST].add(0, dict(who))

    def show_journals(self, journals: Iterable[Journal]) -> None:
        """Show refused calls, and of the processes that are present the time of their last step and their memory."""
        known = list(journals)
        refusals: Counter[Attributes] = Counter()
        present = {_who(one.started.rank, one.started.role): one for one in presence.present(known)}
        with self._lock:
            for journal in known:
                who = _who(journal.started.rank, journal.started.role)
                for index, allocator in journal.on_devices.items():
                    self._show_allocator(journal, index, allocator, who)
                for reason, count in journal.refusals.items():
                    of_reason: Attributes = (*who, (semconv.ERROR_TYPE, reason))
                    refusals[of_reason] += count
            self._totals[semconv.METRIC_TELEMETRY_REFUSED].update(refusals)
            self._forget_phases_of_others(present.keys())
        self.show_points("journals", [point for who, one in present.items() for point in presence.of_process(one, who)])

    def show_points(self, probe: str, points: Iterable[Point]) -> None:
        """Show the points of a probe; its points that are not measured any more disappear."""
        shown: set[tuple[str, Attributes]] = set()
        with self._lock:
            for point in points:
                self._table(point.metric)[point.attributes] = point.value
                shown.add((point.metric, point.attributes))
            for metric, attributes in self._of_probes.get(probe, set()) - shown:
                self._gauges[metric].pop(attributes, None)  # counters stay: they do not fall
            self._of_probes[probe] = shown

    def show_failures(self, failures: Mapping[tuple[str, str], int]) -> None:
        """Show how often probes failed, by probe and reason."""
        with self._lock:
            for (probe, reason), count in failures.items():
                key: Attributes = ((semconv.HARDWARE_SOURCE, probe), (semconv.ERROR_TYPE, reason))
                self._totals[semconv.METRIC_HARDWARE_FAILURES][key] = count

    def name_devices(self, labels: Mapping[str, int]) -> None:
        """Record the UUID of each device that names have an index for."""
        devices = {label: uuid for uuid, label in labels.items() if "/" not in uuid}
        if devices != self._devices:
            self._devices = devices
            with self._lock:
                self._forget_rows()

    def show_totals(self, metric: str, attribute: str, totals: Mapping[str, int], also: Attributes = ()) -> None:
        """Set the counters of `metric`, one for each value of the attribute; each has the other attributes too."""
        with self._lock:
            for value, total in totals.items():
                attributes: Attributes = ((attribute, value), *also)
                self._totals[metric][attributes] = total

    def shutdown(self, timeout_s: float) -> None:
        """Push the metrics once more, and shut down."""
        self._provider.shutdown(timeout_millis=timeout_s * 1000)

    def _create(self) -> None:
        meter = self._provider.get_meter("otel_rl", schema_url=semconv.SCHEMA_URL)
        added_to = {
            *(semconv.METRIC_TRAIN_STEPS, semconv.METRIC_PROCESSES_LOST, semconv.METRIC_NUMERICS_NONFINITE),
            *(semconv.METRIC_TELEMETRY_LATE, semconv.METRIC_TELEMETRY_INCOMPLETE, semconv.METRIC_TRAINING_ANOMALIES),
        }
        observable = {
            "counter": meter.create_observable_counter,
            "updowncounter": meter.create_observable_up_down_counter,
        }
        for name, metric in registry.metrics().items():
            if metric.instrument == "histogram":
                self._histograms[name] = meter.create_histogram(
                    name, metric.unit, metric.brief, explicit_bucket_boundaries_advisory=_SECONDS
                )
            elif name in added_to:
                self._counters[name] = meter.create_counter(name, metric.unit, metric.brief)
            else:
                create = observable.get(metric.instrument or "", meter.create_observable_gauge)
                create(name, [self._callback(self._table(name))], metric.unit, metric.brief)

    def _callback(self, table: Mapping[Attributes, float]) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            with self._lock:
                return [Observation(value, dict(key)) for key, value in table.items() if math.isfinite(value)]

        return observe

    def _show_row(self, row: Row) -> None:
        with self._lock:
            if self._chosen != self._vocabulary.chosen:  # the names have another meaning now
                self._chosen = self._vocabulary.chosen
                self._forget_rows()
            if not row.late:
                self._gauges[semconv.METRIC_STEP_CURRENT][()] = row.step
            self._rows += 1
            for name, value in row.values.items():
                series = self._series.get(name) or self._resolve(name)
                if series is None or series.row == self._rows:
                    continue
                place = (row.attempt, row.step)
                if place >= series.at or (row.attempt == series.at[0] and not row.late):  # a late row is an older view
                    series.row, series.at = self._rows, place
                    series.table[series.attributes] = value * series.factor
        if row.late:
            self._counters[semconv.METRIC_TELEMETRY_LATE].add(len(row.values))
        if row.missing_ranks:
            self._counters[semconv.METRIC_TELEMETRY_INCOMPLETE].add(1)
        nonfinite = Counter(row.nonfinite)
        nonfinite.update(name for name, value in row.values.items() if not math.isfinite(value))
        for name, count in nonfinite.items():
            self._counters[semconv.METRIC_NUMERICS_NONFINITE].add(count, {semconv.METRIC_NAME: name})

    def _resolve(self, name: str) -> _Series | None:
        """Return where a logged value is shown; `None` if there are too many series, which is counted."""
        metric, attributes, factor = self._meaning(name)
        attributes = tuple((k, self._device(v) if k == semconv.HW_ID else v) for k, v in attributes)
        series = self._of_rows.get((metric, attributes))
        if series is None and len(self._of_rows) >= _MOST_SERIES:
            self._drop_series()
            return None
        if series is None:
            series = self._of_rows[metric, attributes] = _Series(self._table(metric), attributes, factor)
        self._series[name] = series
        return series

    def _drop_series(self) -> None:
        overflow: Attributes = ((semconv.ERROR_TYPE, "series_limit"),)
        dropped = self._totals[semconv.METRIC_TELEMETRY_DROPPED]
        dropped[overflow] = dropped.get(overflow, 0) + 1

    def _show_allocator(self, journal: Journal, index: int, memory: DeviceMemory, who: Attributes) -> None:
        seen = journal.devices.get(index)
        of_device: Attributes = ((semconv.HW_ID, seen.uuid if seen is not None and seen.uuid else str(index)), *who)
        self._totals[semconv.METRIC_DEVICE_ALLOC_RETRIES][of_device] = memory.retries
        self._totals[semconv.METRIC_DEVICE_OOMS][of_device] = memory.ooms

    def _forget_phases_of_others(self, present: Container[Attributes]) -> None:
        phases = self._gauges[semconv.METRIC_RANK_PHASE_TIME]
        for attributes in [one for one in phases if one[1:] not in present]:  # the first attribute is the phase
            del phases[attributes]

    def _device(self, index: str | int) -> str:
        return self._devices.get(int(index), str(index)) if str(index).isdecimal() else str(index)

    def _table(self, metric: str) -> dict[Attributes, float]:
        return (self._totals if registry.metrics()[metric].instrument == "counter" else self._gauges)[metric]

    def _meaning(self, name: str) -> tuple[str, Attributes, float]:
        """Return the metric, the attributes and the factor under which a logged value is shown."""
        reading = self._vocabulary.read_row(name)
        if reading is not None:
            return reading.metric, reading.attributes, reading.factor
        return semconv.METRIC_METRIC, ((semconv.METRIC_NAME, name),), 1.0

    def _forget_rows(self) -> None:
        for series in self._of_rows.values():
            series.table.pop(series.attributes, None)
        self._of_rows.clear()
        self._series.clear()


class _Series(msgspec.Struct):
    """The series of a metric name. If two names in a row have the same series, the first one counts.

    The first one is the trainer's own name; derived names come after it.
    """

    table: dict[Attributes, float]
    attributes: Attributes
    factor: float
    row: int = 0
    at: tuple[int, int] = (-1, -1)


def _some(span: Span, *names: str) -> dict[str, str | int]:
    """Return the given attributes, if the span has them."""
    return {name: value for name in names if isinstance(value := span.attributes.get(name), str | int)}


def _seconds(span: Span) -> float:
    return (span.end_unix_nano - span.start_unix_nano) / 1e9


def _who(rank: int, role: str) -> Attributes:
    return ((semconv.RANK, rank), (semconv.ROLE, role)) if role else ((semconv.RANK, rank),)
