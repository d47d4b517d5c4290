"""The registry against OpenTelemetry's semantic conventions, as `opentelemetry-semantic-conventions` has them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import opentelemetry.semconv._incubating.attributes
import opentelemetry.semconv._incubating.metrics
import opentelemetry.semconv.attributes
import opentelemetry.semconv.metrics
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

from otel_rl.analysis import Point
from otel_rl.export import RunInfo
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.semconv import registry
from otel_rl.semconv.vocabulary import Vocabulary

METRICS = (opentelemetry.semconv._incubating.metrics, opentelemetry.semconv.metrics)
ATTRIBUTES = (opentelemetry.semconv._incubating.attributes, opentelemetry.semconv.attributes)


def modules(*packages: ModuleType) -> Iterator[ModuleType]:
    for package in packages:
        for found in pkgutil.iter_modules(package.__path__):
            yield importlib.import_module(f"{package.__name__}.{found.name}")


def standard_metrics() -> dict[str, tuple[str, str]]:
    """Return kind and unit of each metric, by making all of its instruments."""
    meter = MeterProvider(shutdown_on_exit=False).get_meter("conventions")
    found: dict[str, tuple[str, str]] = {}
    for module in modules(*METRICS):
        for name, create in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("create_"):
                callbacks = {"callbacks": None} if "callbacks" in inspect.signature(create).parameters else {}
                instrument = create(meter, **callbacks)
                kind = type(instrument).__name__.strip("_").removeprefix("Observable").lower()
                found[instrument.name] = (kind, instrument.unit)
    return found


def standard_attributes() -> set[str]:
    return {value for module in modules(*ATTRIBUTES) for name, value in vars(module).items() if name.isupper()}


def test_metrics_outside_rl_are_those_of_the_conventions() -> None:
    """Each exists there, with the same kind of instrument and the same unit."""
    standard = standard_metrics()
    used = {name: (metric.instrument, metric.unit) for name, metric in registry.metrics().items()}
    foreign = {name: what for name, what in used.items() if not name.startswith("rl.")}

    assert len(foreign) > 15
    assert {name: what for name, what in foreign.items() if standard.get(name) != what} == {}


def test_attributes_outside_rl_are_those_of_the_conventions() -> None:
    """An attribute of otel-rl's own is in no other namespace."""
    assert {name for name in registry.attributes() if not name.startswith("rl.")} - standard_attributes() == set()


def test_spans_events_and_entities_are_in_the_namespace() -> None:
    """The conventions have no name for any of them, but for the event of a reward."""
    kinds = ("span", "event", "entity")
    foreign = [one for one in registry.groups() if one.type in kinds and not one.name.startswith("rl.")]

    assert [(one.name, one.source) for one in foreign] == [("gen_ai.evaluation.result", "gen_ai")]


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


def test_an_up_down_counter_is_a_sum_that_may_fall_and_end(reader: InMemoryMetricReader) -> None:
    """Memory of a process that is gone leaves the metrics; the SDK does not repeat its last value."""
    shown = OtelMetrics(RunInfo("run", "p", "n", "."), [reader], Vocabulary("auto"))
    seen = []
    for points in ([Point("process.memory.usage", 5.0)], [Point("process.memory.usage", 3.0)], []):
        shown.show_points("processes", points)
        data = reader.get_metrics_data()
        metrics = [] if data is None else [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        found = [metric.data for metric in metrics if metric.name == "process.memory.usage"]
        assert all(isinstance(one, Sum) and not one.is_monotonic for one in found)
        seen.append([point.value for one in found for point in one.data_points])

    assert seen == [[5.0], [3.0], []]
