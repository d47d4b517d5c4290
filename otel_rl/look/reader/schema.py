"""Whether a file of the archive has what its table says: a checksum shows only that a file was not changed later.

Columns and their types, missing values, the range of integers, the shape of JSON, and texts of which a table knows a
few. Types and ranges are in the footer; only texts of JSON and of few values are read.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import duckdb
import msgspec

from otel_rl.look.reader.plain_paths import plain
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive.columns import largest_of
from otel_rl.recorder.archive.tables import SQL

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.archive.tables import ArchiveTable, Column

_SHAPES: dict[Any, str] = {dict: "'OBJECT'", Mapping: "'OBJECT'", tuple: "'ARRAY'", list: "'ARRAY'", str: "'VARCHAR'"}
_NUMBERS = "'BIGINT', 'UBIGINT'"
_local = threading.local()


def fault_of(table: ArchiveTable, path: Path) -> str:
    """Return why a file cannot be one of a table, with the column; empty if it can."""
    try:
        cursor = _cursor()
        source = f"read_parquet({literal(plain(path))}, hive_partitioning = false)"
        types = {name: kind for name, kind, *_ in cursor.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
        return _of_types(table, types) or _of_ranges(table, path, cursor) or _of_values(table, types, source, cursor)
    except duckdb.Error:
        return "it is not a Parquet file that can be read"


def _cursor() -> duckdb.DuckDBPyConnection:
    """Return a connection of this thread."""
    if not hasattr(_local, "connection"):
        _local.connection = duckdb.connect(":memory:")
        _local.connection.execute("SET threads = 1")
    connection: duckdb.DuckDBPyConnection = _local.connection
    return connection


def _of_types(table: ArchiveTable, types: Mapping[str, str]) -> str:
    for column in table.columns:
        if column.name not in types and not column.can_be_null:
            return f"it has no column {column.name}"
        if types.get(column.name, SQL[column.kind]) != SQL[column.kind]:
            return f"its column {column.name} is not of type {column.kind}"
    return ""


def _of_ranges(table: ArchiveTable, path: Path, cursor: duckdb.DuckDBPyConnection) -> str:
    query = f"""SELECT path_in_schema, min(TRY_CAST(stats_min_value AS HUGEINT)),
        max(TRY_CAST(stats_max_value AS HUGEINT)), sum(stats_null_count)
        FROM parquet_metadata({literal(plain(path))}) GROUP BY ALL"""
    found = {name: facts for name, *facts in cursor.execute(query).fetchall()}
    for column in table.columns:
        least, most, nulls = found.get(column.name, (None, None, 0))
        if nulls and not column.can_be_null:
            return f"its column {column.name} has missing values"
        if column.kind == "int64" and max(-(least or 0), most or 0) > largest_of(column):
            return f"its column {column.name} has a number that is out of range"
    return ""


def _of_values(table: ArchiveTable, types: Mapping[str, str], source: str, cursor: duckdb.DuckDBPyConnection) -> str:
    conditions = {name: condition for name, condition in _conditions(table).items() if name in types}
    if not conditions:
        return ""
    wrong = ", ".join(f"count(*) FILTER (WHERE NOT ({condition}))" for condition in conditions.values())
    counts = cursor.execute(f"SELECT {wrong} FROM {source}").fetchall()[0]
    name = next((name for name, count in zip(conditions, counts, strict=True) if count), "")
    return f"its column {name} has a value that {table.name} cannot have" if name else ""


@cache
def _conditions(table: ArchiveTable) -> dict[str, str]:
    """Return, by column, the condition in SQL that a value is one that the field of the item can have."""
    types = {field.name: field.type for field in msgspec.structs.fields(table.item)}
    found = {}
    for column in table.columns:
        condition = _condition(column, types.get(column.field or column.name))
        if condition and not column.attribute:
            found[column.name] = condition
    return found


def _condition(column: Column, kind: Any) -> str:
    name = column.name
    if column.kind == "json":
        parts = [] if kind is str else [part for part in get_args(kind) if part is not Ellipsis]
        shape = "'ARRAY'" if kind is str else _SHAPES[get_origin(kind)]  # tool calls are texts of JSON
        is_good = f"json_type({name}) = {shape}"
        if shape == "'ARRAY'" and (element := _element(parts)):
            types = f"list_transform(json_extract({name}, '$[*]'), lambda one: json_type(one) IN ({element}))"
            is_good += f" AND coalesce(list_bool_and({types}), true)"
        return f"{name} IS NULL OR CASE WHEN json_valid({name}) THEN {is_good} ELSE false END"
    known = next((one for one in (kind, *get_args(kind)) if get_origin(one) is Literal), None)
    if column.kind == "text" and known is not None:
        return f"{name} IS NULL OR {name} IN ({', '.join(map(literal, get_args(known)))})"
    return ""


def _element(parts: list[Any]) -> str:
    """Return the types in JSON of the elements of an array; empty for any."""
    first = parts[0] if parts and len({*parts}) == 1 else NoneType
    if first is int:
        return _NUMBERS
    if isinstance(first, type) and issubclass(first, msgspec.Struct):
        return "'OBJECT'"
    return _SHAPES.get(get_origin(first) or first, "")
