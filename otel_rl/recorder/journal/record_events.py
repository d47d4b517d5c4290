"""Conversion of journal records to OpenTelemetry log events and back, by which agents of several machines communicate.

A record is the event `rl.journal.<kind>` with a map of its fields as body, which every Collector can forward. Integers
of more than 63 bits, such as span ids, are sent as eight bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import msgspec

from otel_rl.export import Machine
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.journal.records import AnyRecord, Index, Name, Record, Time

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "rl.journal."
JOURNAL, INDEX = "rl.journal.name", "rl.journal.index"
MACHINE = "rl.machine.metrics"
_SECOND = "rl.machine.second"
_INT64 = 1 << 63


class Lost(Record, tag=100):
    """The process died without finishing; written by the agent of its machine, not by the process.

    `cause` is as in `rl.process.cause`, and `exit_code` as in `Finished`; `None` if unknown.
    """

    time: Time
    cause: Name | None = None
    exit_code: Index | None = None


class Revived(Record, tag=101):
    """A process that was reported as lost is running; also written by the agent of its machine."""

    time: Time


_KINDS: dict[str, type[Record]] = {kind.__name__.lower(): kind for kind in (*get_args(AnyRecord), Lost, Revived)}


def to_event(record: Record) -> tuple[str, dict[str, Any]]:
    """Return the name and the body of a record's event, without fields that are `None`."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    plain = {name: _outgoing(value) for name, value in fields.items() if value is not None}
    return f"{PREFIX}{type(record).__name__.lower()}", plain


def from_event(name: str, body: object) -> Record:
    """Return the record in an event.

    Raises:
        ValueError: The event does not hold a valid record.
    """
    kind = _KINDS.get(name.removeprefix(PREFIX))
    if kind is None or not isinstance(body, dict):
        raise ValueError(f"invalid event {name}: not a journal record")
    tag = kind.__struct_config__.tag
    fields = [_incoming(body.get(field)) for field in kind.__struct_fields__]
    try:
        return msgspec.convert([tag, *fields], kind, builtin_types=(bytes,))
    except UNDECODABLE as error:
        raise ValueError(f"{name}: {error}") from error


def from_machine(machine: Machine) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the body and the attributes of the event for the measurements of a machine."""
    return dict(machine.values), {_SECOND: machine.step}


def to_machine(time: int, body: object, attributes: Mapping[str, Any]) -> Machine:
    """Return the measurements of a machine in an event.

    Raises:
        KeyError, TypeError, ValueError: The event does not hold valid measurements.
    """
    if not isinstance(body, dict):
        raise TypeError(f"{MACHINE} without values")
    return Machine(int(attributes[_SECOND]), time, {str(name): float(value) for name, value in body.items()})


def _outgoing(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value >= _INT64:
        return {"uint64": value.to_bytes(8, "big")}
    if isinstance(value, dict):
        return {str(key): _outgoing(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_outgoing(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return [_outgoing(item) for item in msgspec.structs.astuple(value)]
    return value


def _incoming(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"uint64"} and isinstance(value["uint64"], bytes):  # not a metric of that name
            return int.from_bytes(value["uint64"], "big")
        return {key: _incoming(item) for key, item in value.items()}
    return [_incoming(item) for item in value] if isinstance(value, list) else value
