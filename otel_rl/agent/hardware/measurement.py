"""Measurements, and the probes that make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

Attributes = tuple[tuple[str, str | int], ...]


class Point(NamedTuple):
    """A value of a metric of the registry, in its unit; attributes are sorted by name."""

    metric: str
    value: float
    attributes: Attributes = ()


class Measurement(NamedTuple):
    """The points that one probe measured at one time (Unix nanoseconds); empty if it has stopped to measure."""

    probe: str
    time: int
    points: tuple[Point, ...]


class Probe(Protocol):
    """Something that can be measured, such as one GPU, the host, or the processes of the trainer, and its name."""

    name: str

    def read(self) -> Iterable[Point]:
        """Measure. This may block and may raise: it runs in a thread of its own."""
