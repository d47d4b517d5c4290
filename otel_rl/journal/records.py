"""The vocabulary of the journal: every fact that a trainer process writes down.

Records are positional (`array_like`) so that they are small and quick to encode. Fields are only
ever added at the end, with a default: a journal outlives the version that wrote it.

Times are nanoseconds since the Unix epoch. `memory` is a raw snapshot of `otel_rl.devices.host_memory`, parsed
by the reader: parsing would cost the trainer more than taking it.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from otel_rl.export import AttributeValue, Cell, Outcome

UNKNOWN = -1
"""Version of a policy that is not known."""

TRAINED = "trained"
"""Outcome of a trajectory that was trained on."""

IDS = struct.Struct(">16sQ")
"""A trace id and a span id, as `Consumed` packs them."""


class Record(msgspec.Struct, array_like=True, gc=False):
    """One fact in the journal."""


class DeviceMemory(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What the allocator of one device says at one moment, in bytes.

    Attributes:
        index: Which device, as the process counts them.
        allocated: In use by tensors.
        reserved: Held by the allocator, tensors included.
        peak_allocated: Highest `allocated` since whoever reset it last.
        peak_reserved: Likewise.
        inactive: Free, but in blocks that are partly in use: what cannot be given back.
        retries: How often the allocator had to free its cache to serve a request, so far.
        ooms: How often it could not serve one, so far.
        used: Of the whole device, by all processes; -1 where that was not asked.
    """

    index: int
    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    inactive: int = 0
    retries: int = 0
    ooms: int = 0
    used: int = -1


class Started(Record, tag=0):
    """The process began to record; always the first record of a journal."""

    run_id: str
    attempt: int
    rank: int
    world_size: int
    local_world_size: int
    role: str
    pid: int
    host: str
    page_size: int
    time: int
    visible_devices: str | None = None


class StepStarted(Record, tag=1):
    """The process entered a step of the RL loop."""

    step: int
    time: int
    memory: bytes
    devices: list[DeviceMemory] | None = None


class StepEnded(Record, tag=2):
    """The process left a step; `error` is the type and text of the exception that passed.

    If `ok` is true, somebody has set the status to OK. `link_attributes` are those of the links, in their order.
    """

    step: int
    time: int
    memory: bytes
    attributes: dict[str, AttributeValue] | None = None
    error: tuple[str, str] | None = None
    events: list[tuple[str, int, dict[str, AttributeValue]]] | None = None
    links: list[tuple[bytes, int]] | None = None
    devices: list[DeviceMemory] | None = None
    ok: bool = False
    link_attributes: list[dict[str, AttributeValue]] | None = None


class SpanStarted(Record, tag=3):
    """A span began.

    Attributes:
        span_id: Its id.
        parent_id: Id of its parent, 0 for a root.
        trace_id: 16 bytes.
        step: The step that was open; `None` outside of any.
        name: A phase's name, or a third party's span name.
        time: When.
        memory: Snapshot at the start of a phase, else empty.
        kind: OTel's `SpanKind` of a third party's span; `None` for a phase.
        devices: Device memory at the start of a phase, where there are devices.
        part: Which part of the phase `name` it is: onload, execute, offload …; empty for the phase itself.
        scope: Name and version of a third party's tracer.
    """

    span_id: int
    parent_id: int
    trace_id: bytes
    step: int | None
    name: str
    time: int
    memory: bytes
    kind: int | None = None
    devices: list[DeviceMemory] | None = None
    part: str = ""
    scope: tuple[str, str] | None = None


class SpanEnded(Record, tag=4):
    """A span ended; `timed` promises a `DeviceTimed` for it; the rest is as `StepEnded` has it."""

    span_id: int
    time: int
    memory: bytes
    attributes: dict[str, AttributeValue] | None = None
    error: tuple[str, str] | None = None
    events: list[tuple[str, int, dict[str, AttributeValue]]] | None = None
    links: list[tuple[bytes, int]] | None = None
    name: str | None = None
    devices: list[DeviceMemory] | None = None
    timed: bool = False
    ok: bool = False
    link_attributes: list[dict[str, AttributeValue]] | None = None


class Logged(Record, tag=5):
    """Values of metrics at a step, in the framework's own names; `weight` is how many samples they stand for."""

    step: int
    time: int
    values: dict[str, int | float]
    weight: int | float = 1


class Configured(Record, tag=6):
    """Hyper-parameters, flat and redacted."""

    time: int
    values: dict[str, bool | int | float | str | None]


class Happened(Record, tag=7):
    """Something that happened once."""

    name: str
    time: int
    attributes: dict[str, AttributeValue]
    step: int | None = None
    trace_id: bytes = b""
    span_id: int = 0


class Refusals(Record, tag=8):
    """How often each kind of call was refused so far."""

    counts: dict[str, int]


class Observed(Record, tag=10):
    """Samples of metrics at a step: native doubles, one after another."""

    step: int
    time: int
    values: dict[str, bytes]


class Tabled(Record, tag=11):
    """A table at a step, clean: plain cells, cut to the limits, secrets redacted."""

    step: int
    time: int
    name: str
    columns: list[str]
    rows: list[tuple[Cell, ...]]
    cut_rows: int = 0


class DeviceSeen(Record, tag=12):
    """The process uses a device; `uuid` and `total` (bytes) are what its driver says."""

    time: int
    index: int
    uuid: str
    name: str
    total: int


class DeviceTimed(Record, tag=13):
    """How long a phase took on its device, and how long after the step had begun there it began, in seconds."""

    step: int | None
    span_id: int
    seconds: float
    offset: float = 0.0


class OnDevice(Record, tag=14):
    """Values that were logged are still on a device (1), or have come from there and are recorded (-1)."""

    step: int
    count: int


class Consumed(Record, tag=15):
    """What became of trajectories at a step.

    Attributes:
        step: The step.
        time: When.
        outcome: Whether they were trained on ("trained"), or why they were dropped.
        policy_version: Of the policy that is trained; -1 if not known.
        ids: Trace id and span id of each, 24 bytes in network order; 0 where it has no trace.
        rewards: Native doubles, one of each; NaN where it is not known.
        segments: Native 64-bit integers in threes: which trajectory, version that sampled (-1: unknown), tokens.
    """

    step: int
    time: int
    outcome: str
    policy_version: int
    ids: bytes
    rewards: bytes
    segments: bytes


class Finished(Record, tag=9):
    """The process will record nothing more.

    Attributes:
        time: When.
        outcome: How it ended.
        error: Type and text of the exception that ended it, or name and description of the signal.
        exit_code: As `otel_rl.export.Ended` has it.
    """

    time: int
    outcome: Outcome = "finished"
    error: tuple[str, str] | None = None
    exit_code: int = 0


AnyRecord = (
    Started
    | StepStarted
    | StepEnded
    | SpanStarted
    | SpanEnded
    | Logged
    | Observed
    | Tabled
    | Configured
    | Happened
    | Refusals
    | DeviceSeen
    | DeviceTimed
    | OnDevice
    | Consumed
    | Finished
)


def encodable(record: Record) -> Record:
    """Return the record with what MessagePack has no place for replaced.

    Integers beyond 64 bits become floats; characters that are no Unicode text, such as those of a
    file name in another encoding, are spelled out.
    """
    replaced: Record = encodable_value(record)
    return replaced


def encodable_value(value: Any) -> Any:
    """Return a value with what MessagePack has no place for replaced, at any depth."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return float(value) if abs(value) < 1 << 1023 else str(value)
    if isinstance(value, dict):
        return {encodable_value(key): encodable_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(encodable_value(item) for item in value)
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: encodable_value(getattr(value, name)) for name in value.__struct_fields__})
    return value
