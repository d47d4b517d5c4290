"""The registry: every name that is emitted, described once."""

from __future__ import annotations

import re

from otel_rl import semconv
from otel_rl.semconv import registry


def test_every_entry_says_what_it_is_and_where_its_name_comes_from() -> None:
    """Each has a brief and a note; ids are unique and begin with the type."""
    groups = registry.groups()

    assert [group.id for group in groups if not group.brief or not group.note] == []
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


def test_no_two_metrics_collide_in_prometheus() -> None:
    """Dots become underscores there."""
    names = [re.sub(r"\W", "_", name) for name in registry.metrics()]

    assert len(set(names)) == len(names)


def test_every_constant_is_in_the_registry() -> None:
    """The names in code are those of the registry: of spans, events, or attributes of something."""
    described = {name for group in registry.groups() for name in (group.name, group.metric_name, *group.attributes)}
    constants = {key: value for key, value in vars(semconv).items() if key.isupper()}

    assert {key for key, value in constants.items() if value not in described} == set()


def test_dialects_and_phases_name_what_exists() -> None:
    """Each meaning is a metric of the registry with attributes that it has; each stage has a duration."""
    for name in registry.dialects():
        for meaning in registry.dialect(name).values():
            assert set(meaning.attributes) <= set(registry.metrics()[meaning.metric].attributes)
    for stage in registry.stages().values():
        assert f"rl.{stage}.duration" in registry.metrics()
