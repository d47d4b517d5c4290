"""Items as columns of tables, and columns as items: what is read back equals what was written, all fields."""

from __future__ import annotations

from array import array
from collections import defaultdict
from functools import cache
from itertools import repeat
from operator import add, attrgetter, itemgetter, sub
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from otel_rl.recorder.archive.json_texts import decoded, encoded
from otel_rl.recorder.archive.tables import PACKED
from otel_rl.recorder.convert.gen_ai_messages import without_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from otel_rl.export import Item
    from otel_rl.recorder.archive.tables import ArchiveTable, Column, ColumnType

Columns = dict[str, "Sequence[Any]"]
"""The values of the lines of a table, by the names of its columns."""
LARGEST = 3 << 61
"""The largest integer of a column, as a time in the year 2189: a time with a duration has to fit into 64 bits."""
_OTHERS = "attributes"
"""The column of the other attributes."""
_TYPES: dict[ColumnType, type] = {"int64": int, "double": float, "bool": bool, "text": str, "id": str}


def fit(items: Sequence[Item]) -> bool:
    """Return whether the integers of items of one kind are in the range that readers accept."""
    return all(_are_in_range([*map(get, items)]) for get in _integers(type(items[0])))


def _are_in_range(values: Sequence[int | None]) -> bool:
    return min(filter(None, values), default=0) >= -LARGEST and max(filter(None, values), default=0) <= LARGEST


@cache
def _integers(kind: type[msgspec.Struct]) -> tuple[attrgetter[int | None], ...]:
    """Return functions that return the integers among the fields of an item."""
    return tuple(attrgetter(field.name) for field in fields(kind) if field.type in (int, int | None))


class _Field(NamedTuple):
    """A field of a kind of item."""

    type: Any
    default: Callable[[], Any]  # makes the default; `None` of a field that is required


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, _Field]:
    """Return the fields of a kind of item, in their order."""
    return {field.name: _Field(field.type, _default(field)) for field in fields(kind)}


def _default(field: FieldInfo) -> Callable[[], Any]:
    factory: Any = field.default_factory
    value = None if field.required else field.default
    return (lambda: value) if factory is msgspec.NODEFAULT else factory


def heads_of(table: ArchiveTable) -> list[Column]:
    """Return the columns that all lines of an item share, of a table with a line for each of its values."""
    return [column for column in table.columns if not column.is_of_value]


def has_line_for_each_value(table: ArchiveTable) -> bool:
    """Return whether a table has a line for each value of an item, rather than one line."""
    return len(heads_of(table)) < len(table.columns)


def columns_of(table: ArchiveTable, items: Sequence[Item]) -> list[Sequence[Any]]:
    """Return the values of items in each column of a table that has one line for each item."""
    own = split(table, items)
    return [
        own[column.name] if column.name in own else _written(column, _fields(table.item)[_source(column)], items)
        for column in table.columns
    ]


def _source(column: Column) -> str:
    return column.field or column.name


def _written(column: Column, field: _Field, items: Sequence[Item]) -> Sequence[Any]:
    """Return the values of items in a column; the default of a field is null, if its column can be."""
    values = [*map(attrgetter(_source(column)), items)]
    if column.since:
        return [*map(sub, values, map(attrgetter(column.since), items))]
    if code := PACKED.get(column.kind):
        return [array(code, packed) for packed in values]
    if field.type is str:  # of kind `json` too: it is JSON already
        return [value or None for value in values] if column.can_be_null else values
    if column.kind != "json":
        return values
    default = field.default()
    if column.can_be_null and values.count(default) == len(values):  # hardly any span has some
        return [None] * len(values)
    empty = None if column.can_be_null else "{}" if get_origin(field.type) is dict else "[]"
    return [empty if value == default else encoded(value) or empty for value in values]


def _read(column: Column, field: _Field, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a field from a column."""
    if code := PACKED.get(column.kind):
        return [array(code, numbers or ()).tobytes() for numbers in values]
    if column.kind == "texts":
        return [tuple(texts or ()) for texts in values]
    if column.kind != "json" or field.type is str:
        return values if None not in values else [field.default() if value is None else value for value in values]
    if get_origin(field.type) is dict:
        return [field.default() if text is None else _object(text) for text in values]
    return [field.default() if text is None else msgspec.convert(decoded(text), field.type) for text in values]


def _object(text: str) -> dict[str, Any]:
    """Return the object of a JSON text.

    Raises:
        ValueError: It is something else.
    """
    value = decoded(text)
    if not isinstance(value, dict):
        raise ValueError("a JSON text is not an object")
    return value


def items_of(columns: Mapping[ArchiveTable, Columns]) -> Iterator[Item]:
    """Yield the items of one kind from all of its tables, in the order of the lines of the last one."""
    [first, *_], [*_, table] = columns, columns
    lines, more = columns[table], Columns()
    if has_line_for_each_value(first):
        heads = [column.name for column in heads_of(first)]
        groups = _grouped(heads, columns[first])
        if table is first:
            ordered = sorted(groups, key=itemgetter(heads.index("time_unix_nano")))
            lines = {name: [key[place] for key in ordered] for place, name in enumerate(heads)}
        of_items = [groups.get(key, []) for key in zip(*map(lines.__getitem__, heads), strict=True)]
        more = {
            "values": [{name: value for _, name, value, _ in group} for group in of_items],
            "measured": [tuple(name for _, name, _, is_measured in group if is_measured) for group in of_items],
        }
    return _made(table, lines, more)


def _grouped(heads: Sequence[str], columns: Columns) -> dict[tuple[Any, ...], list[tuple[int, str, int | float, bool]]]:
    """Return the place, the name and the value of each line, and whether otel-rl measured it, by the heads."""
    groups: defaultdict[tuple[Any, ...], list[tuple[int, str, int | float, bool]]] = defaultdict(list)
    keys = zip(*map(columns.__getitem__, heads), strict=True)
    measured = columns.get("measured") or [False] * len(columns["name"])
    of_value = (columns[name] for name in ("place", "name", "value", "integer", "exact"))
    for key, place, name, value, integer, exact, is_measured in zip(keys, *of_value, measured, strict=True):
        number = (int(value) if exact is None else int(exact)) if integer else value
        groups[key].append((place, name, number, is_measured))
    for group in groups.values():
        group.sort(key=itemgetter(0))  # the order in which they were recorded
    return groups


def _made(table: ArchiveTable, lines: Columns, more: Columns) -> Iterator[Item]:
    """Yield items from the columns of a table, and from values of fields that are in another table."""
    known, of_fields = _fields(table.item), dict(more)
    for column in heads_of(table):
        name = _source(column)
        if column.since:
            of_fields[name] = [*map(add, lines[column.name], lines[column.since])]
        elif not column.attribute:
            of_fields[name] = _read(column, known[name], lines[column.name])
    of_fields |= joined(table, lines, of_fields)
    parts = (of_fields[name] if name in of_fields else repeat(known[name].default()) for name in known)
    make: Any = table.item
    return map(make, *parts)


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
    return int not in types or _are_in_range(values)
