"""Reads the registry, the phases and the dialects; the agent uses it, a trainer never does."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import msgspec

Instrument = Literal["counter", "gauge", "histogram"]


class Group(msgspec.Struct, frozen=True):
    """One entry of the registry."""

    id: str
    type: Literal["entity", "metric", "span", "event"]
    brief: str
    note: str
    metric_name: str = ""
    name: str = ""
    instrument: Instrument | None = None
    unit: str = ""
    attributes: tuple[str, ...] = ()


class Meaning(msgspec.Struct, frozen=True):
    """What a framework's metric name stands for."""

    metric: str
    attributes: dict[str, str] = {}


class _Registry(msgspec.Struct):
    groups: list[Group]


def _content(*path: str) -> bytes:
    return resources.files("otel_rl.semconv").joinpath(*path).read_bytes()


@cache
def groups() -> tuple[Group, ...]:
    """Return the whole registry."""
    return tuple(msgspec.yaml.decode(_content("registry.yaml"), type=_Registry).groups)


@cache
def metrics() -> dict[str, Group]:
    """Return the metrics by name."""
    return {group.metric_name: group for group in groups() if group.type == "metric"}


@cache
def stages() -> dict[str, str]:
    """Return for each known phase which of genai#88's stages it is: sample, reward, train or sync."""
    stages = msgspec.yaml.decode(_content("phases.yaml"), type=dict[str, list[str]])
    return {phase: stage for stage, phases in stages.items() for phase in phases}


@cache
def dialect(name: str) -> dict[str, Meaning]:
    """Return what the metric names of one framework mean, or of all of them for "auto"."""
    names = dialects() if name == "auto" else (name,)
    found: dict[str, Meaning] = {}
    for one in names:
        found |= msgspec.yaml.decode(_content("dialects", f"{one}.yaml"), type=dict[str, Meaning])
    return found


@cache
def dialects() -> tuple[str, ...]:
    """Return the names of the dialects."""
    files = resources.files("otel_rl.semconv").joinpath("dialects").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))
