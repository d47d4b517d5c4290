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


class Watched(NamedTuple):
    """A trainer process: its id in its own PID namespace, and its `CUDA_VISIBLE_DEVICES`, `None` where it is not set.

    The role is empty for an ordinary rank. `started_unix_nano` is the time of the first record.
    """

    pid: int
    rank: int
    role: str
    visible_devices: str | None
    started_unix_nano: int


class Work(NamedTuple):
    """The work of a process and its children so far.

    Attributes:
        cpu: Seconds of CPU time; NaN if unknown, as for a process of another machine.
        moved: Bytes that were read and written.
        tokens: Tokens that the engines generated which it waits for.
        gpu: Share of the time in which its GPUs are busy now.
        is_stopped: If true, a signal or a debugger has stopped it.
    """

    cpu: float = 0.0
    moved: int = 0
    tokens: float = 0.0
    gpu: float = 0.0
    is_stopped: bool = False


class Probe(Protocol):
    """Something that can be measured, such as one GPU, the host, or the processes of the trainer, and its name."""

    name: str

    def read(self) -> Iterable[Point]:
        """Measure. This may block and may raise: it runs in a thread of its own."""
