"""The records of a journal as OpenTelemetry log events, and back: how the agents of several machines talk.

A record is the event `rl.journal.<kind>` whose body is a map of its fields, so that every collector can carry it and
every backend can show it. Integers of more than 63 bits, such as ids of spans, travel as eight bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import msgspec

from otel_rl.export import Machine
from otel_rl.journal.records import AnyRecord, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "rl.journal."
JOURNAL, INDEX = "rl.journal.name", "rl.journal.index"
MACHINE = "rl.machine.metrics"
_SECOND = "rl.machine.second"
_INT64 = 1 << 63


class Lost(Record, tag=100):
    """The process died without finishing; the word of the agent on its machine, never of the process itself."""

    time: int


class Revived(Record, tag=101):
    """The process was held for dead, and goes on; likewise the word of the agent on its machine."""

    time: int


_KINDS: dict[str, type[Record]] = {kind.__name__.lower(): kind for kind in (*get_args(AnyRecord), Lost, Revived)}


def to_event(record: Record) -> tuple[str, dict[str, Any]]:
    """Return the name and the body of a record's event; what is `None` is left out."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    plain = {name: _outgoing(value) for name, value in fields.items() if value is not None}
    return f"{PREFIX}{type(record).__name__.lower()}", plain


def from_event(name: str, body: object) -> Record:
    """Return the record in an event.

    Raises:
        ValueError: It is none.
    """
    kind = _KINDS.get(name.removeprefix(PREFIX))
    if kind is None or not isinstance(body, dict):
        raise ValueError(f"{name} is no record of a journal")
    tag = kind.__struct_config__.tag
    fields = [_incoming(body.get(field)) for field in kind.__struct_fields__]
    try:
        return msgspec.convert([tag, *fields], kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from error


def from_machine(machine: Machine) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the body and the attributes of the event that carries what was measured of a machine."""
    return dict(machine.values), {_SECOND: machine.step}


def to_machine(time: int, body: object, attributes: Mapping[str, Any]) -> Machine:
    """Return what was measured of a machine.

    Raises:
        KeyError, TypeError, ValueError: It is not in the event.
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
        if value.keys() == {"uint64"} and isinstance(value["uint64"], bytes):  # and no metric of that name
            return int.from_bytes(value["uint64"], "big")
        return {key: _incoming(item) for key, item in value.items()}
    return [_incoming(item) for item in value] if isinstance(value, list) else value
