"""Repairs items that MessagePack cannot encode, or puts them into quarantine.

Items of other programs may have integers of more than 64 bits, and one of them must not prevent that the others are
saved. The state of the reducer has none: see `recorder.stats.statistics` and the snapshots of the analyses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from otel_rl.recorder.journal.records import encodable_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_rl.export import Item
    from otel_rl.recorder.agent.steps.state import Checkpoint
    from otel_rl.recorder.delivery.outbox import Outbox
    from otel_rl.recorder.delivery.quarantine import Quarantine

_LARGEST_ITEM = 32 << 20
"""Bytes of one item; a batch has at most twice as many."""
T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode


def append(outbox: Outbox, new_items: list[Item], state: Checkpoint, quarantine: Quarantine) -> None:
    """Write a batch that could not be encoded, as several batches if it is too large.

    Only the last batch has the new checkpoint: an agent that dies before it makes the items again. Items that are
    written are removed from `made`, so that a retry continues. The quarantine gets those that cannot be written.

    Raises:
        OSError: It cannot be written now.
    """
    new_items[:] = items(new_items, quarantine)
    saved = _encode(state)
    *first, last = parts(new_items)
    for part in first:
        outbox.append(part, outbox.checkpoint or saved)
        del new_items[: len(part)]
    outbox.append(last, saved)


def items(values: Iterable[T], quarantine: Quarantine) -> list[T]:
    """Return the items that can be saved, with integers of more than 64 bits as floats."""
    encodable: list[T] = []
    for item in values:
        with quarantine.guard("saving", type(item).__name__, item):
            encodable.append(_item(item))
    return encodable


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


def parts(batch: list[Item]) -> Iterator[list[Item]]:
    """Yield the items in parts that fit into a batch; at least one part, which may be empty."""
    part: list[Item] = []
    size = 0
    for item in batch:
        length = len(_encode(item))
        if part and size + length > _LARGEST_ITEM:
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    yield part
