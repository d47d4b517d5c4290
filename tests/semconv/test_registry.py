"""The registry: every name that is emitted, described once."""

from __future__ import annotations

import re
from pathlib import Path

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import REGISTRY

import otel_rl
from otel_rl import semconv
from otel_rl.export import Row, RunInfo
from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
from otel_rl.semconv import registry
from otel_rl.semconv.generate import outputs
from otel_rl.semconv.registry import prometheus_name
from otel_rl.semconv.vocabulary import Vocabulary


def test_every_entry_says_what_it_is_and_where_its_name_comes_from() -> None:
    """Each has a brief and a source; ids are unique and begin with the type."""
    groups = [group for group in registry.groups() if group.type != "attribute_group"]

    assert [group.id for group in groups if not group.brief or not group.source] == []
    assert len({group.id for group in groups}) == len(groups)
    assert [group.id for group in groups if group.id != f"{group.type}.{group.metric_name or group.name}"] == []


def test_metric_names_are_legal_and_hold_no_unit() -> None:
    """Names are what the SDK takes; durations are histograms of seconds; counters do not end in total."""
    for name, metric in registry.metrics().items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", name)
        assert metric.instrument is not None
        assert not name.endswith(("total", "seconds", "bytes", "_ms"))
        assert (metric.instrument == "histogram") == name.endswith(".duration")
        assert metric.unit == "s" or not name.endswith((".duration", ".timestamp"))


def test_every_constant_is_in_the_registry() -> None:
    """The names in code are those of the registry: of spans, events, or attributes of something."""
    described = {
        name for group in registry.groups() for name in (group.name, group.metric_name, *group.attribute_names)
    }
    constants = {key: value for key, value in vars(semconv).items() if key.isupper()}

    assert {key for key, value in constants.items() if value not in described} == {"SCHEMA_URL"}


def test_attributes_are_defined_once_and_used() -> None:
    """What metrics, spans, events and the resource refer to is defined, and nothing else is."""
    defining = [group for group in registry.groups() if group.id.startswith("registry.")]
    used = {name for group in registry.groups() if group not in defining for name in group.attribute_names}

    assert sorted(name for group in defining for name in group.attribute_names) == sorted(used)


def test_each_stage_has_a_duration() -> None:
    """The phases that genai#88 knows have a histogram of their own."""
    assert {f"rl.{stage}.duration" for stage in registry.stages().values()} <= set(registry.metrics())


def test_what_is_made_of_the_registry_is_up_to_date() -> None:
    """The constants and the table of metrics are what `python -m otel_rl.semconv.generate` writes."""
    root = Path(otel_rl.__file__).parents[1]

    assert {path: (root / path).read_text() for path in outputs()} == outputs()


def test_the_table_tells_the_names_in_prometheus() -> None:
    """They are those that a scrape of all metrics shows."""
    reader = PrometheusMetricReader()
    shown = OtelMetrics(RunInfo("run", "project", "name", "."), [reader], Vocabulary("trl"))
    with_values = {name: 1.0 for name, metric in registry.metrics().items() if metric.instrument == "gauge"}
    shown.show([Row(0, 0, with_values)])
    families = {family.name for family in REGISTRY.collect()}
    shown.shutdown(1)

    assert {prometheus_name(registry.metrics()[name]) for name in with_values} - families == set()
