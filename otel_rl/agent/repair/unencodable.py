"""Repairs items and checkpoints that MessagePack cannot encode, or puts them into quarantine.

A sum of integers can exceed 64 bits, and one such number must not prevent that the others are saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from otel_rl.journal.records import encodable_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_rl.agent.steps.state import Checkpoint
    from otel_rl.delivery.outbox import Outbox
    from otel_rl.delivery.quarantine import Quarantine
    from otel_rl.export import Item

_LARGEST_ITEM = 32 << 20
"""Bytes of one item; a batch has at most twice as many."""
_INT64 = 1 << 63
T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode


def append(outbox: Outbox, made: list[Item], state: Checkpoint, quarantine: Quarantine) -> None:
    """Write a batch that could not be encoded, as several batches if it is too large.

    Only the last batch has the new checkpoint: an agent that dies before it makes the items again. Items that are
    written are removed from `made`, so that a retry continues. The quarantine gets those that cannot be written.

    Raises:
        OSError: It cannot be written now.
    """
    made[:] = items(made, quarantine)
    saved = _encode(checkpoint(state, quarantine))
    *first, last = parts(made)
    for part in first:
        outbox.append(part, outbox.checkpoint or saved)
        del made[: len(part)]
    outbox.append(last, saved)


def items(found: Iterable[T], quarantine: Quarantine) -> list[T]:
    """Return the items that can be saved, with integers of more than 64 bits as floats."""
    kept: list[T] = []
    for item in found:
        with quarantine.guard("saving", type(item).__name__, item):
            kept.append(_item(item))
    return kept


def _item(item: T) -> T:
    try:
        raw = _encode(item)
    except Exception:
        item = encodable_value(item)
        raw = _encode(item)
    if len(raw) > _LARGEST_ITEM:
        raise ValueError(f"{len(raw)} bytes are more than {_LARGEST_ITEM}")
    msgspec.msgpack.decode(raw, type=type(item))  # an item that cannot be decoded must not be written
    return item


def parts(found: list[Item]) -> Iterator[list[Item]]:
    """Yield the items in parts that fit into a batch; at least one part, which may be empty."""
    part: list[Item] = []
    size = 0
    for item in found:
        length = len(_encode(item))
        if part and size + length > _LARGEST_ITEM:
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    yield part


def checkpoint(found: Checkpoint, quarantine: Quarantine) -> Checkpoint:
    """Return the checkpoint with integers of more than 64 bits cut to 64; the live state is cut too."""
    try:
        _encode(found)
    except Exception:
        _clamp(found)
        quarantine.put("saving", "checkpoint", None, ValueError("integers of more than 64 bits are cut"))
    return found


def _clamp(value: Any) -> Any:
    """Return the value with integers cut to 64 bits; mutable values are changed in place."""
    if isinstance(value, bool | float | str | bytes) or value is None:
        return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
    if isinstance(value, int):
        return min(max(value, -_INT64), 2 * _INT64 - 1)
    if isinstance(value, dict):
        kept = {_clamp(key): _clamp(item) for key, item in value.items()}
        value.clear()
        value.update(kept)
    elif isinstance(value, list):
        value[:] = map(_clamp, value)
    elif isinstance(value, msgspec.Struct):
        if value.__struct_config__.frozen:
            return type(value)(**{name: _clamp(getattr(value, name)) for name in value.__struct_fields__})
        for name in value.__struct_fields__:
            setattr(value, name, _clamp(getattr(value, name)))
    elif isinstance(value, tuple):
        cut = tuple(map(_clamp, value))
        return type(value)(*cut) if hasattr(value, "_fields") else cut
    return value
