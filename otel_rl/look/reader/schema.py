"""Whether a file of the archive has what its table says: a checksum shows only that a file was not changed later.

Columns and their types, missing values, the range of integers, the shape of JSON, and texts of which a table knows a
few. Types and ranges are in the footer; only texts of JSON and of few values are read. Lines with an integer out of
range are left out, and the others of their file are read: an older version wrote such a step for a trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

import duckdb
import msgspec

from otel_rl.look.reader.plain_paths import plain
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive.columns import largest_of
from otel_rl.recorder.archive.json_texts import DEEPEST, is_too_deep
from otel_rl.recorder.archive.tables import SQL

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from pathlib import Path

    from otel_rl.recorder.archive.tables import ArchiveTable, Column

_SHAPES: dict[Any, str] = {dict: "'OBJECT'", Mapping: "'OBJECT'", tuple: "'ARRAY'", list: "'ARRAY'", str: "'VARCHAR'"}
_NUMBERS = "'BIGINT', 'UBIGINT'"


class Fault(NamedTuple):
    """A difference between a file and its table."""

    text: str
    is_of_lines: bool = False
    """If true, the other lines of the file can be read."""


def faults_of(table: ArchiveTable, paths: Sequence[Path]) -> dict[Path, Fault]:
    """Return why files, or lines of them, cannot be those of a table, with the column; those that can are left out.

    All files are looked at together: one after the other, a thousand of them take ten seconds.
    """
    if not paths:
        return {}
    try:
        return _faults(table, {plain(path): path for path in paths})
    except duckdb.Error:  # one of them cannot be read
        if len(paths) == 1:
            return {paths[0]: Fault("it is not a Parquet file that can be read")}
        middle = len(paths) // 2
        return faults_of(table, paths[:middle]) | faults_of(table, paths[middle:])


def lines_in_range(table: ArchiveTable) -> str:
    """Return the condition in SQL that the integers of a line are in range."""
    limits = {column.name: largest_of(column) for column in table.columns if column.kind == "int64"}
    return " AND ".join(f"coalesce({name} BETWEEN {-most} AND {most}, true)" for name, most in limits.items())


def _faults(table: ArchiveTable, files: Mapping[str, Path]) -> dict[Path, Fault]:
    with duckdb.connect(":memory:") as database:
        database.execute("SET threads = 1")
        types = _types(files, database)
        faults = {file: fault for file in files if (fault := _of_types(table, types[file]))}
        good = [file for file in files if file not in faults]
        faults |= _of_ranges(table, good, database) if good else {}
        good = [file for file in good if file not in faults or faults[file].is_of_lines]
        faults |= _of_values(table, {name for file in good for name in types[file]}, good, database)
    return {files[file]: fault for file, fault in faults.items()}


def _types(files: Iterable[str], database: duckdb.DuckDBPyConnection) -> dict[str, dict[str, str]]:
    """Return the types of the columns of each file; of files with equal schemas, one is described."""
    schema = "list((COLUMNS(* EXCLUDE (file_name))::VARCHAR) ORDER BY column_id)"
    query = f"SELECT file_name, {schema} FROM parquet_schema({_listed(files)}) GROUP BY file_name"
    described: dict[str, dict[str, str]] = {}
    types = {}
    for file, *columns in database.execute(query).fetchall():
        key = repr(columns)  # a list for each column of the schema
        if key not in described:
            lines = database.execute(f"DESCRIBE SELECT * FROM {_source([file])}").fetchall()
            described[key] = {name: kind for name, kind, *_ in lines}
        types[file] = described[key]
    return types


def _source(files: Iterable[str]) -> str:
    return f"read_parquet({_listed(files)}, union_by_name = true, hive_partitioning = false)"


def _listed(files: Iterable[str]) -> str:
    return f"[{', '.join(map(literal, files))}]"


def _of_types(table: ArchiveTable, types: Mapping[str, str]) -> Fault | None:
    for column in table.columns:
        if column.name not in types and not column.can_be_null:
            return Fault(f"it has no column {column.name}")
        if types.get(column.name, SQL[column.kind]) != SQL[column.kind]:
            return Fault(f"its column {column.name} is not of type {column.kind}")
    return None


def _of_ranges(table: ArchiveTable, files: Sequence[str], database: duckdb.DuckDBPyConnection) -> dict[str, Fault]:
    query = f"""SELECT file_name, path_in_schema, min(TRY_CAST(stats_min_value AS HUGEINT)),
        max(TRY_CAST(stats_max_value AS HUGEINT)), sum(stats_null_count)
        FROM parquet_metadata({_listed(files)}) GROUP BY ALL"""
    found = {(file, name): facts for file, name, *facts in database.execute(query).fetchall()}
    all_facts = {file: {column: found.get((file, column.name)) for column in table.columns} for file in files}
    return {file: fault for file, facts in all_facts.items() if (fault := _out_of_range(facts))}


def _out_of_range(found: Mapping[Column, Sequence[int | None] | None]) -> Fault | None:
    fault = None
    for column, facts in found.items():
        least, most, nulls = facts or (None, None, 0)
        if nulls and not column.can_be_null:
            return Fault(f"its column {column.name} has missing values")
        if column.kind == "int64" and max(-(least or 0), most or 0) > largest_of(column):
            fault = Fault(f"its column {column.name} has a number that is out of range", is_of_lines=True)
    return fault


def _of_values(
    table: ArchiveTable, names: Container[str], files: Sequence[str], database: duckdb.DuckDBPyConnection
) -> dict[str, Fault]:
    conditions = {name: condition for name, condition in _conditions(table).items() if name in names}
    if not conditions:
        return {}
    wrong = ", ".join(f"count(*) FILTER (WHERE NOT ({condition}))" for condition in conditions.values())
    query = f"SELECT file_index, {wrong} FROM {_source(files)} GROUP BY file_index"
    faults = {}
    for at, *counts in database.execute(query).fetchall():
        if name := next((name for name, count in zip(conditions, counts, strict=True) if count), ""):
            faults[files[at]] = Fault(f"its column {name} has a value that {table.name} cannot have")
    for column in table.columns:
        if column.kind == "json" and column.name in conditions:
            name = column.name
            brackets = f"length({name}) - length(translate({name}, '[{{', ''))"
            query = f"SELECT file_index, {name} FROM {_source(files)} WHERE {brackets} > {DEEPEST}"
            lines = database.execute(query)
            while line := lines.fetchone():
                if is_too_deep(line[1]):
                    faults[files[line[0]]] = Fault(f"its column {name} has a value that nests too deeply")
    return faults


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
