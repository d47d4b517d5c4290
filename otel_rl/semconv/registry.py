"""Readers of the registry and of the phases. The agent uses them; trainers only use them to check settings.

The registry is `model/*.yaml`, in the format of OpenTelemetry's semantic conventions. `annotations` holds what that
format has no field for: the source of a name, the reduction over ranks, and exceptions from OpenTelemetry's policies.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

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


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A definition of an attribute (`id`), or a reference to one (`ref`)."""

    id: str = ""
    ref: str = ""
    type: str = ""
    stability: str = ""
    brief: str = ""
    examples: list[Any] = []


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
    unit: str = ""
    attributes: tuple[Attribute, ...] = ()

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """The names of the attributes that it defines or uses."""
        return tuple(attribute.id or attribute.ref for attribute in self.attributes)

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


def content(*path: str) -> bytes:
    """Read a data file of this package."""
    return resources.files("otel_rl.semconv").joinpath(*path).read_bytes()


@cache
def groups() -> tuple[Group, ...]:
    """Return the whole registry, file by file."""
    files = sorted(f.name for f in resources.files("otel_rl.semconv").joinpath("model").iterdir())
    decoded = (msgspec.yaml.decode(content("model", file), type=dict[str, list[Group]]) for file in files)
    return tuple(group for file in decoded for group in file["groups"])


@cache
def metrics() -> dict[str, Group]:
    """Return the metrics by name."""
    return {group.metric_name: group for group in groups() if group.type == "metric"}


@cache
def attributes() -> dict[str, Attribute]:
    """Return the definitions of attributes by name."""
    return {a.id: a for group in groups() if group.type == "attribute_group" for a in group.attributes}


@cache
def stages() -> dict[str, str]:
    """Return the stage of genai#88 (sample, reward, train or sync) of each known phase."""
    stages = msgspec.yaml.decode(content("phases.yaml"), type=dict[str, list[str]])
    return {phase: stage for stage, phases in stages.items() for phase in phases}
