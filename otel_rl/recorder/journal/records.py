"""The records of the journal: every kind of fact that a trainer process writes.

Records are positional (`array_like`) so that they are small and fast to encode. New fields go at the end and have a
default, because a newer version must read the journals of an older one.

Times are nanoseconds since the Unix epoch. `memory` is a raw snapshot of `otel_rl.recorder.devices.host_memory`. The
reader parses it, because parsing would cost the trainer more than taking it.

The bounds of fields are checked when a record is decoded, not when it is written. `check` has the rules that types
cannot express.
"""

from __future__ import annotations

import math
import struct
from array import array
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from otel_rl import semconv
from otel_rl.export import AttributeValue, Cell, Outcome
from otel_rl.recorder.convert.values import WHOLE
from otel_rl.recorder.errors.texts import LONGEST_NAME

UNKNOWN = -1
"""The version of a policy, if it is unknown."""

TRAINED = "trained"
"""The outcome of a trajectory that was trained on."""

PART_KINDS = ("model", "tool", "environment", "verifier")
"""The kinds of parts of a trajectory. The time outside of all parts counts as "other"."""

AWAITED = frozenset(
    {
        *("awaits", "version", semconv.POLICY_VERSION, "group", "group_id", "prompt_id"),
        *(semconv.GEN_AI_TOOL_NAME, semconv.TRAJECTORY_PART_NAME),
        *(semconv.SERVER_ADDRESS, semconv.SERVER_PORT, "url.full", "http.url", "net.peer.name", "net.peer.port"),
    }
)
"""Attributes that say what a span waits for, or is about: they are written at its start too."""

TRAINER, ENGINE = "trainer", "engine"
"""The sides that hold weights."""

IDS = struct.Struct(">16sQ")
"""A trace id and a span id, as `Consumed` packs them."""
_TRACE_ID = 16
SNAPSHOT_BYTES = b"0123456789 \n"
"""The bytes of a snapshot of the memory of a process."""
_SEGMENT = 3
_MOST_SECONDS = 1e9

LONGEST_TEXT = 1 << 16
"""Characters of a message that are kept."""

LONGEST_PIECE = 256
"""Characters of the text of one token."""
MOST_TOKENS = 1 << 17
"""Tokens of a message, and log-probabilities of a trajectory in the trainer, that are kept."""

Time = Annotated[int, Meta(ge=0, lt=WHOLE)]
StepNumber = Annotated[int, Meta(ge=0, lt=WHOLE)]
Index = Annotated[int, Meta(ge=0, lt=1 << 31)]
Size = Annotated[int, Meta(ge=0, lt=WHOLE)]
Measured = Annotated[int, Meta(ge=-1, lt=WHOLE)]  # -1 if it was not measured
SpanId = Annotated[int, Meta(ge=0)]
TraceId = Annotated[bytes, Meta(max_length=16)]
Statm = Annotated[bytes, Meta(max_length=256)]
Name = Annotated[str, Meta(max_length=6 * LONGEST_NAME)]  # a trainer may escape characters that UTF-8 cannot encode
Attributes = dict[Name, AttributeValue]
_Short = Annotated[str, Meta(max_length=1024)]  # all open spans are kept
Awaited = dict[Name, bool | int | float | _Short | Annotated[list[bool | int | float | _Short], Meta(max_length=128)]]
_Path = Annotated[bytes, Meta(max_length=4096)]  # as the kernel has it: any bytes
Packed = Annotated[bytes, Meta(max_length=8 * MOST_TOKENS)]  # native numbers, one for each token; empty if unknown
Integers = Annotated[Packed, Meta(extra={"array": "i"})]
Doubles = Annotated[Packed, Meta(extra={"array": "d"})]
Truths = Annotated[Packed, Meta(extra={"array": "B"})]
Moment = tuple[Name, Time, Attributes]  # an event inside a span


# `gc=False`: a record brings the trainer's garbage collection no nearer. In a cycle, it would never be freed.
class Record(msgspec.Struct, array_like=True, gc=False):
    """One fact in the journal; its class is the only list of the kinds."""

    def check(self) -> None:
        """Check the values, before anything changes: a record that failed halfway would fail again after each restart.

        Raises:
            ValueError: The record cannot be processed.
        """
        self._check()

    def _check(self) -> None:
        """Raise `ValueError` for values that the types of the fields allow."""


class DeviceMemory(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """The state of one device's allocator, in bytes; peaks are since the last reset, by whichever code."""

    index: Index  # of the device in this process
    allocated: Measured  # in use by tensors
    reserved: Measured  # held by the allocator, tensors included
    peak_allocated: Measured
    peak_reserved: Measured
    inactive: Measured = 0  # free, but in blocks that are partly in use, so that it cannot be released to the device
    retries: Measured = 0  # how often the allocator freed its cache to serve a request, so far
    ooms: Measured = 0  # how often the allocator could not serve a request, so far
    used: Measured = -1  # memory of the device that all processes use; -1 if it was not measured


class Started(Record, tag=0):
    """The process started recording; always the first record of a journal."""

    run_id: Name
    attempt: Index
    rank: Index
    world_size: Index
    local_world_size: Index
    role: Name
    pid: Size
    host: Name
    page_size: Annotated[int, Meta(ge=1, lt=1 << 31)]
    time: Time
    visible_devices: str | None = None
    outputs: Annotated[list[tuple[Index, Name, Size, _Path]], Meta(max_length=2)] = []
    """Of standard output and error that are files: number, device and inode, size at the start, and path."""


class StepStarted(Record, tag=1):
    """The process entered a step of the RL loop."""

    step: StepNumber
    time: Time
    memory: Statm
    devices: list[DeviceMemory] | None = None

    def _check(self) -> None:
        _check_memory(self.memory)


class StepEnded(Record, tag=2):
    """The process left a step; `memory` and `devices` were measured at its end, the other fields are its span's."""

    step: StepNumber
    time: Time
    memory: Statm
    attributes: Attributes | None = None
    error: tuple[str, str] | None = None  # type and text of the exception that left the step
    events: list[Moment] | None = None  # name, time and attributes of each
    links: list[tuple[TraceId, SpanId]] | None = None  # trace id and span id of each
    devices: list[DeviceMemory] | None = None
    ok: bool = False  # whether the status was set to OK explicitly
    link_attributes: list[dict[str, AttributeValue]] | None = None  # in the order of `links`

    def _check(self) -> None:
        _check_end(self)


class SpanStarted(Record, tag=3):
    """A phase, or a span of the OpenTelemetry API, started."""

    span_id: SpanId
    parent_id: SpanId  # 0 for a root
    trace_id: TraceId
    step: StepNumber | None  # the open step; `None` outside of a step
    name: Name
    time: Time
    memory: Statm  # empty if it is not a phase
    kind: Annotated[int, Meta(ge=0, lt=5)] | None = None  # OpenTelemetry's `SpanKind`; `None` for a phase
    devices: list[DeviceMemory] | None = None  # at the start of a phase, if there are devices
    part: Name = ""  # the part of the phase `name`, such as onload or execute; empty for the phase itself
    scope: tuple[Name, Name] | None = None  # name and version of the OpenTelemetry tracer
    awaits: Awaited | None = None  # the attributes of `AWAITED` that are known at its start

    def _check(self) -> None:
        _check_memory(self.memory)
        _check_trace_id(self.trace_id)


class SpanEnded(Record, tag=4):
    """A span ended; if `timed` is true, a `DeviceTimed` follows. The other fields are those of `StepEnded`."""

    span_id: SpanId
    time: Time
    memory: Statm
    attributes: Attributes | None = None
    error: tuple[str, str] | None = None
    events: list[Moment] | None = None
    links: list[tuple[TraceId, SpanId]] | None = None
    name: Name | None = None
    devices: list[DeviceMemory] | None = None
    timed: bool = False
    ok: bool = False
    link_attributes: list[dict[str, AttributeValue]] | None = None

    def _check(self) -> None:
        _check_end(self)


class Logged(Record, tag=5):
    """Values of metrics at a step, in the framework's own names; `weight` is the number of samples behind them."""

    step: StepNumber
    time: Time
    values: dict[Name, int | float]
    weight: Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)] = 1

    def _check(self) -> None:
        if not self.weight < math.inf:
            raise ValueError(f"invalid weight={self.weight}: must be finite")


class Configured(Record, tag=6):
    """Hyperparameters, flattened and redacted."""

    time: Time
    values: dict[Name, bool | int | float | str | None]


class Happened(Record, tag=7):
    """An event."""

    name: Name
    time: Time
    attributes: Attributes
    step: StepNumber | None = None
    trace_id: TraceId = b""
    span_id: SpanId = 0

    def _check(self) -> None:
        _check_trace_id(self.trace_id)


class Refusals(Record, tag=8):
    """How often each kind of call was refused so far."""

    counts: dict[Name, Size]


class Observed(Record, tag=10):
    """Observations of metrics at a step, as arrays of native doubles."""

    step: StepNumber
    time: Time
    values: dict[Name, bytes]

    def _check(self) -> None:
        for name, raw in self.values.items():
            _check_doubles(name, raw)


class Tabled(Record, tag=11):
    """A table at a step: plain cells, truncated to the limits, with secrets redacted."""

    step: StepNumber
    time: Time
    name: Name
    columns: list[Name]
    rows: list[tuple[Cell, ...]]
    cut_rows: Size = 0

    def _check(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"invalid columns={self.columns}: each name must be there once")
        for cells in self.rows:
            if len(cells) != len(self.columns):
                raise ValueError(f"invalid row of {len(cells)} cells: there are {len(self.columns)} columns")


class DeviceSeen(Record, tag=12):
    """The process uses a device; `uuid` and `total` (bytes) come from its driver."""

    time: Time
    index: Index
    uuid: Name
    name: Name
    total: Size


class DeviceTimed(Record, tag=13):
    """The duration of a phase on its device, and its start relative to the start of the step there, in seconds."""

    step: StepNumber | None
    span_id: SpanId
    seconds: float
    offset: float = 0.0

    def _check(self) -> None:
        for what, seconds in (("seconds", self.seconds), ("offset", self.offset)):
            if not (math.isnan(seconds) or abs(seconds) < _MOST_SECONDS):
                raise ValueError(f"invalid {what}={seconds}: must be below {_MOST_SECONDS:g}")


class OnDevice(Record, tag=14):
    """Logged values are still on a device (`count` 1), or have been copied from it and recorded (-1)."""

    step: StepNumber
    count: Annotated[int, Meta(gt=-(1 << 31), lt=1 << 31)]


class Consumed(Record, tag=15):
    """Trajectories that were trained on or dropped at a step.

    `segments` has three native 64-bit integers per segment: index of the trajectory, version of the policy that sampled
    it (-1: unknown), number of tokens.
    """

    step: StepNumber
    time: Time
    outcome: Name  # "trained", or the reason why they were dropped
    policy_version: Measured  # of the policy that is trained; -1 if unknown
    ids: bytes  # trace id and span id of each trajectory, 24 bytes in network order; 0 if it has no trace
    rewards: bytes  # one native double per trajectory; NaN if unknown
    segments: bytes
    parts: dict[Name, float] = {}  # seconds of the trajectories that have parts, by kind, with "other"
    tools: dict[Name, tuple[Size, float, float]] = {}  # calls, their seconds, and those of the longest, by tool
    advantages: bytes = b""  # like `rewards`; empty if they were not given
    losses: bytes = b""
    origins: list[tuple[Name, Name, Name]] = []  # prompt, group and row of the dataset; empty if there are none
    components: list[dict[Name, float]] = []  # the parts of each reward; empty if there are none
    logprobs: list[Packed] = []  # in the trainer, as native doubles; empty if they were not given
    have_spans: bool = True  # whether the ids are those of spans

    def _check(self) -> None:
        _check_doubles("rewards", self.rewards)
        count, rest = divmod(len(self.ids), IDS.size)
        if rest or count != len(self.rewards) // 8:
            raise ValueError(f"invalid ids of {len(self.ids)} bytes for {len(self.rewards) // 8} rewards")
        if len(self.segments) % (8 * _SEGMENT):
            raise ValueError(f"invalid segments of {len(self.segments)} bytes: must be three integers of 8 bytes each")
        segments = memoryview(self.segments).cast("q")
        times = [*self.parts.values(), *(seconds for _, *both in self.tools.values() for seconds in both)]
        if not all(0 <= seconds < math.inf for seconds in times):
            raise ValueError(f"invalid times of parts {times}: must be finite numbers of at least 0")
        for scores in (self.advantages, self.losses):
            if len(scores) not in (0, 8 * count):
                raise ValueError(f"invalid scores of {len(scores)} bytes for {count} trajectories")
        for each in (self.origins, self.components, self.logprobs):
            if len(each) not in (0, count):
                raise ValueError(f"invalid number {len(each)} of values for {count} trajectories")
        for raw in self.logprobs:
            _check_doubles("log-probabilities", raw)
        for which, version, tokens in zip(segments[0::3], segments[1::3], segments[2::3], strict=True):
            _check_within("trajectory", which, 0, count)
            _check_within("version", version, -1, WHOLE)
            _check_within("tokens", tokens, 0, 1 << 53)


class Sample(msgspec.Struct, array_like=True, gc=False):
    """A few elements of a tensor.

    `elements` identifies which they are, by the name and the shape of the whole tensor. `held` has a bit for each of
    them that this process has, and `values` those as native doubles.
    """

    dtype: Name
    elements: Annotated[int, Meta(ge=0, lt=1 << 32)]
    held: Annotated[int, Meta(ge=0, lt=1 << 8)]
    values: bytes = b""


class Fingerprint(Record, tag=16):
    """Samples of the weights of a version of the policy, by the names of the tensors."""

    version: Size
    time: Time
    side: Name  # `TRAINER` or `ENGINE`
    step: StepNumber | None  # the open step; `None` outside of a step
    tensors: Annotated[dict[Name, Sample], Meta(max_length=1 << 12)] = {}

    def _check(self) -> None:
        for name, sample in self.tensors.items():
            if len(sample.values) != 8 * sample.held.bit_count():
                raise ValueError(f"invalid {name} of {len(sample.values)} bytes for {sample.held.bit_count()} elements")


class WrittenMessage(msgspec.Struct, array_like=True, gc=False):
    """A message of a trajectory: its text is cut, and secrets are redacted."""

    author: Name
    text: Annotated[str, Meta(max_length=LONGEST_TEXT)]
    name: Name = ""  # of the tool
    cut: Size = 0  # characters that were cut
    calls: Annotated[str, Meta(max_length=LONGEST_TEXT)] = ""  # of tools, as JSON
    policy_version: Measured = UNKNOWN
    tokens: Integers = b""
    logprobs: Doubles = b""
    mask: Truths = b""
    pieces: Annotated[tuple[Annotated[str, Meta(max_length=LONGEST_PIECE)], ...], Meta(max_length=MOST_TOKENS)] = ()


TOKEN_LISTS: dict[str, str] = {
    field.name: meta.extra["array"]
    for field in msgspec.structs.fields(WrittenMessage)
    for meta in getattr(field.type, "__metadata__", ())
    if meta.extra
}
"""The code of the array of each list of numbers that belongs to the tokens of a message."""


class Wrote(Record, tag=17):
    """Messages of a trajectory, in their order."""

    time: Time
    trace_id: TraceId
    span_id: SpanId
    group_id: Name
    number: Index  # of the first of them
    messages: Annotated[list[WrittenMessage], Meta(max_length=1 << 12)]
    is_last: bool = False  # whether no more messages follow

    def _check(self) -> None:
        if len(self.trace_id) != _TRACE_ID or not self.span_id < 1 << 64:
            raise ValueError(f"invalid ids {self.trace_id!r}, {self.span_id} of a trajectory")
        for message in self.messages:
            lists = {len(getattr(message, name)) / array(code).itemsize for name, code in TOKEN_LISTS.items()}
            counts = (lists | {len(message.pieces)}) - {0}
            if len(counts) > 1 or counts - {int(count) for count in counts}:
                raise ValueError(f"invalid numbers {sorted(counts)} of tokens, their lists and texts: must be equal")


class Printed(Record, tag=18):
    """A line that the process printed, or a message of Python's logging: without secrets, and cut.

    It does not show progress: a process that hangs may print that it waits.
    """

    time: Time
    stream: Name  # a name of `otel_rl.export.STREAMS`
    text: Annotated[str, Meta(max_length=LONGEST_TEXT)]
    severity: Annotated[int, Meta(ge=0, le=24)] = 0  # OpenTelemetry's number; 0 if it is not known
    logger: Name = ""
    repeated: Size = 1
    cut: Size = 0  # characters that were cut
    left_out: Size = 0  # lines that were left out before the next one, if this stands for them
    attributes: Attributes = {}
    trace_id: TraceId = b""
    span_id: SpanId = 0
    is_shared: bool = False  # whether several processes write to the file, and this one may not be the writer

    def _check(self) -> None:
        _check_trace_id(self.trace_id)


class Finished(Record, tag=9):
    """The process ended; the last record of a journal."""

    time: Time
    outcome: Outcome = "finished"
    error: tuple[str, str] | None = None  # type and text of the exception, or name and description of the signal
    exit_code: Index = 0  # like `otel_rl.export.Ended.exit_code`


if TYPE_CHECKING:
    AnyRecord = Record
else:
    AnyRecord = reduce(or_, Record.__subclasses__())
"""A record of any kind that a process writes: the classes above."""


def _check_within(what: str, value: int, low: int, bound: int) -> None:
    if not low <= value < bound:
        raise ValueError(f"invalid {what}={value}: must be at least {low} and below {bound}")


def _check_memory(memory: bytes) -> None:
    if memory.translate(None, SNAPSHOT_BYTES):
        raise ValueError(f"invalid memory={memory[:40]!r}: must be the content of /proc/PID/statm")
    for field in memory.split()[:2]:
        _check_within("memory", int(field), 0, 1 << 48)


def _check_trace_id(trace_id: bytes) -> None:
    if len(trace_id) not in (0, _TRACE_ID):
        raise ValueError(f"invalid trace id of {len(trace_id)} bytes: must be {_TRACE_ID}, or none")


def _check_end(record: SpanEnded | StepEnded) -> None:
    _check_memory(record.memory)
    for trace_id, _ in record.links or ():
        _check_trace_id(trace_id)


def _check_doubles(name: str, raw: bytes) -> None:
    if len(raw) % 8:
        raise ValueError(f"invalid {name} of {len(raw)} bytes: must be whole numbers of 8 bytes each")


def encodable_value(value: Any) -> Any:
    """Replace the values that MessagePack cannot encode, at any depth.

    Integers beyond 64 bits become floats. Lone surrogates, such as in a badly encoded file name, are escaped.
    """
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
