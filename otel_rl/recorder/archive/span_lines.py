"""The attributes of spans as columns: those of nearly all spans have a column each, the others are JSON in one."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any

from otel_rl.recorder.archive.json_texts import encoded
from otel_rl.recorder.convert.gen_ai_messages import without_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.recorder.archive.tables import ArchiveTable, ColumnType

LIMIT = 1 << 63
"""The first integer that does not fit into a column."""
_OTHERS = "attributes"
"""The column of the other attributes."""
_TYPES: dict[ColumnType, type] = {"int64": int, "double": float, "bool": bool, "text": str, "id": str}


def split(table: ArchiveTable, items: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return the attributes of spans by the names of their columns; nothing for other tables."""
    slots = {column.attribute: column for column in table.columns if column.attribute}
    if not slots:
        return {}
    attributes = [without_messages(span) for span in items]  # the table of messages has these
    nothing: list[Any] = [None] * len(attributes)
    names = set[str]().union(*attributes)
    own = {name: [each.get(name) for each in attributes] if name in names else nothing for name in slots}
    misfits = [
        (number, name)
        for name, values in own.items()
        if not _fit(_TYPES[slots[name].kind], values)
        for number, value in enumerate(values)
        if not _fit(_TYPES[slots[name].kind], [value])
    ]
    texts = nothing
    if misfits or not names <= slots.keys():
        others = [{name: value for name, value in each.items() if name not in slots} for each in attributes]
        for number, name in misfits:  # of a program that uses the name in its own way
            others[number][name] = attributes[number][name]
            own[name][number] = None
        texts = [encoded(each) for each in others]
    return {column.name: own[name] for name, column in slots.items()} | {_OTHERS: texts}


def joined(
    table: ArchiveTable, columns: dict[str, Sequence[Any]], fields: dict[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """Return the attributes of spans from their columns, and from the JSON of the others; nothing for other tables."""
    slots = [column for column in table.columns if column.attribute]
    if not slots:
        return {}
    names = [column.attribute for column in slots]
    own = zip(*(columns[column.name] for column in slots), strict=True)
    return {
        _OTHERS: [
            {name: value for name, value in zip(names, line, strict=True) if value is not None} | others
            for line, others in zip(own, fields[_OTHERS], strict=True)
        ]
    }


def _fit(kind: type, values: Sequence[Any]) -> bool:
    """Return whether values are of the type of their column, or missing."""
    types = set(map(type, values))
    if not types <= {kind, NoneType}:
        return False
    return int not in types or max(values if len(types) == 1 else filter(None, values), default=0) < LIMIT
