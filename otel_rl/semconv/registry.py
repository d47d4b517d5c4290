"""Readers of the registry and of the phases. The agent uses them; trainers only use them to check settings.

The registry is `model/*.yaml`, in the format of OpenTelemetry's semantic conventions. `annotations` holds what that
format has no field for: the source of a name, the reduction over ranks, and exceptions from OpenTelemetry's policies.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

_MANIFEST = "manifest.yaml"
_UNITS_IN_PROMETHEUS = {
    "s": "seconds",
    "By": "bytes",
    "By/{step}": "bytes",
    "By/s": "bytes_per_second",
    "J": "joules",
    "W": "watts",
    "Hz": "hertz",
    "Cel": "celsius",
}
Instrument = Literal["counter", "gauge", "histogram", "updowncounter"]
Kind = Literal["attribute_group", "entity", "metric", "span", "event"]


class _Annotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    reduce: str = ""


class _Exceptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policy_exceptions: tuple[Literal["metric_namespace_collision"], ...]


class _Annotations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    otel_rl: _Annotation
    naming_conventions: _Exceptions = _Exceptions(())


class _Foreign(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A definition of an attribute (`id`), or a reference to one (`ref`), here or in OpenTelemetry's registry."""

    id: str = ""
    ref: str = ""
    type: str = ""
    stability: str = ""
    brief: str = ""
    examples: list[Any] = []
    role: Literal["", "identifying", "descriptive"] = ""
    annotations: dict[Literal["otel_rl"], _Foreign] = {}

    @property
    def name(self) -> str:
        """The name of the attribute."""
        return self.id or self.ref

    @property
    def value_type(self) -> str:
        """The type of its values, such as `string[]`; empty for a reference within this registry."""
        return self.annotations["otel_rl"].type if self.annotations else self.type


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the registry."""

    id: str
    type: Kind
    brief: str
    annotations: _Annotations
    stability: str = ""
    metric_name: str = ""
    name: str = ""
    instrument: Instrument | None = None
    span_kind: Literal["", "internal"] = ""
    unit: str = ""
    attributes: tuple[Attribute, ...] = ()

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """The names of the attributes that it defines or uses."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def source(self) -> str:
        """The source of the name: genai#88, process, system, hw, gen_ai, or otel-rl."""
        return self.annotations.otel_rl.source

    @property
    def reduce(self) -> str:
        """The reduction over ranks; empty if not defined."""
        return self.annotations.otel_rl.reduce

    @property
    def exceptions(self) -> tuple[str, ...]:
        """The rules of OpenTelemetry's naming policies that it breaks on purpose."""
        return self.annotations.naming_conventions.policy_exceptions


class _RegistryFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: tuple[Group, ...]
    imports: dict[Literal["entities", "events"], tuple[str, ...]] = {}


def content(*path: str) -> bytes:
    """Read a data file of this package."""
    return resources.files("otel_rl.semconv").joinpath(*path).read_bytes()


@cache
def groups() -> tuple[Group, ...]:
    """Return the whole registry, file by file."""
    files = sorted(f.name for f in resources.files("otel_rl.semconv").joinpath("model").iterdir())
    decoded = (msgspec.yaml.decode(content("model", file), type=_RegistryFile) for file in files if file != _MANIFEST)
    return tuple(group for file in decoded for group in file.groups)


def manifest() -> dict[str, Any]:
    """Return what other registries know this one by."""
    return msgspec.yaml.decode(content("model", _MANIFEST), type=dict[str, Any])


@cache
def metrics() -> dict[str, Group]:
    """Return the metrics by name."""
    return {group.metric_name: group for group in groups() if group.type == "metric"}


@cache
def attributes() -> dict[str, Attribute]:
    """Return the attributes by name: those of otel-rl, and those of OpenTelemetry that it uses."""
    return {a.name: a for group in groups() if group.id.startswith("registry.") for a in group.attributes}


@cache
def stages() -> dict[str, str]:
    """Return the stage of genai#88 (sample, reward, train or sync) of each known phase."""
    stages = msgspec.yaml.decode(content("phases.yaml"), type=dict[str, list[str]])
    return {phase: stage for stage, phases in stages.items() for phase in phases}


def prometheus_name(metric: Group) -> str:
    """Return the name of a metric in Prometheus; the series of a histogram have further suffixes."""
    name = re.sub(r"\W", "_", metric.metric_name)
    unit = "per_second" if metric.unit.endswith("}/s") else _UNITS_IN_PROMETHEUS.get(metric.unit, "")
    name = f"{name}_{unit}" if unit and not name.endswith(unit) else name
    return f"{name}_total" if metric.instrument == "counter" else name
