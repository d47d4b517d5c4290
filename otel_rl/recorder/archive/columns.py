"""Columns of tables: from values and from Parquet files, and as such files."""

from __future__ import annotations

import io
from array import array
from contextlib import contextmanager
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any

from arro3.core import Array, DataType, Field, RecordBatch, RecordBatchReader, list_array
from arro3.io import read_parquet, write_parquet

from otel_rl.recorder.archive.lines import LARGEST
from otel_rl.recorder.archive.notes import STEPS_NOTE
from otel_rl.recorder.archive.tables import PACKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from arro3.core import Schema
    from arro3.io._parquet import ParquetEncoding

    from otel_rl.recorder.archive.lines import Columns
    from otel_rl.recorder.archive.tables import ArchiveTable, Column, ColumnType

_REPEATED = DataType.dictionary(DataType.int32(), DataType.string())
_PLAIN = {
    "int64": DataType.int64(),
    "double": DataType.float64(),
    "bool": DataType.bool(),
    **dict.fromkeys(("id", "text", "json"), DataType.string()),
}
_ELEMENTS = {
    "int64s": DataType.int64(),
    "doubles": DataType.float64(),
    "bools": DataType.bool(),
    "texts": DataType.string(),
}
_LISTS = {kind: DataType.list(Field("element", of)) for kind, of in _ELEMENTS.items()}
_TYPES = _PLAIN | dict.fromkeys(("text", "json"), _REPEATED) | _LISTS
_ELEMENT = "list", "element"  # the path of the elements below a column of lists
YOUNG, SEALED = "snappy", "zstd(1)"
"""Compression: half the time to write for files that are soon deleted, a tenth less space for those that stay."""
_ROW_GROUP = 1 << 18
"""Lines of a row group, usually all of a file. DuckDB opens each group, and skips pages by first and last name."""
_MAGIC = b"PAR1"
_INTEGER_64 = (1 << 63) - 1
_KEYS = {"b": DataType.int8(), "h": DataType.int16(), "i": DataType.int32()}
"""The types of places in arrays of Python, and in columns."""


def largest_of(column: Column) -> int:
    """Return the largest integer that a column can have; readers leave out a duration that is beyond all times."""
    return _INTEGER_64 if column.name.endswith("_ns") else LARGEST


def batch_of(table: ArchiveTable, columns: Iterable[Sequence[Any]]) -> RecordBatch:
    """Return columns of values, in the order of the table's."""
    pairs = zip(table.columns, columns, strict=True)
    return RecordBatch.from_pydict({column.name: array_of(column, values) for column, values in pairs})


def array_of(column: Column, values: Sequence[Any]) -> Array:
    """Return the values of a column; most columns have one value in all lines, and share one array for it."""
    if column.kind in _ELEMENTS:
        return _lists(column.kind, values)
    kind, plain = _TYPES[column.kind], _PLAIN[column.kind]
    if values and values[0] == values[-1] and column.kind != "double" and values.count(values[0]) == len(values):
        return _repeated(column.kind, values[0], len(values))  # 0.0 equals -0.0
    made = Array(values, plain)
    return made if kind is plain else made.cast(kind)


def _lists(kind: ColumnType, values: Sequence[Sequence[Any] | None]) -> Array:
    """Return lists as a column of lists; an empty one is null."""
    code, element = PACKED.get(kind, ""), _ELEMENTS[kind]
    flat: Any = array(code) if code else []
    ends = array("i", [0])
    for elements in values:
        flat.extend(elements or ())
        ends.append(len(flat))
    is_null = numbers(array("B", [not elements for elements in values]), DataType.bool())
    return list_array(
        numbers(ends, DataType.int32()),
        numbers(flat, element) if code else Array(flat, element),
        type=_LISTS[kind],
        mask=is_null,
    )


@lru_cache(64)
def _repeated(kind: ColumnType, value: Any, count: int) -> Array:
    return Array([value], _PLAIN[kind]).cast(_TYPES[kind]).take(Array.from_buffer(array("i", bytes(4 * count))))


def shorter(values: Iterable[int], limit: int) -> array[int]:
    """Return numbers below a limit in as few bytes as it allows."""
    return array("b" if limit <= 1 << 7 else "h" if limit <= 1 << 15 else "i", values)


def picked(column: Column, values: Sequence[Any], places: array[int]) -> Array:
    """Return the values at places, of a column with few different values: only the places take memory for each line."""
    kind, keys = _PLAIN[column.kind], _KEYS[places.typecode]
    few = Array(values, kind)
    return (few if column.kind == "bool" else few.cast(DataType.dictionary(keys, kind))).take(numbers(places, keys))


def numbers(values: array[Any], kind: DataType) -> Array:
    """Return numbers as a column."""
    return Array.from_buffer(values).cast(kind) if values else Array([], kind)


def to_parquet(
    table: ArchiveTable, batches: list[RecordBatch], *, compression: str, notes: dict[str, str] | None = None
) -> memoryview:
    """Return columns, which can be in several parts, as a Parquet file with notes in its footer.

    The list of parts is emptied: each part is freed when it is in the file.
    """
    file = io.BytesIO()
    encodings: dict[str | Sequence[str], ParquetEncoding] = {
        (column.name, *_ELEMENT) if column.kind in _ELEMENTS else column.name: column.encoding
        for column in table.columns
        if column.encoding
    }
    notes = notes_of(table, batches) | (notes or {})
    reader = RecordBatchReader.from_batches(batches[0].schema, batches)
    batches.clear()
    write_parquet(
        reader,
        file,
        compression=compression,
        column_encoding=encodings,
        column_dictionary_enabled=dict.fromkeys(encodings, False),
        key_value_metadata=notes or None,
        max_row_group_size=_ROW_GROUP,
        writer_version="parquet_2_0",
        skip_arrow_metadata=True,  # with it, readers of Arrow get dictionaries in place of texts
    )
    return file.getbuffer()


def from_parquet(table: ArchiveTable, data: bytes) -> RecordBatch:
    """Return the columns of a file; those that a newer version has added are null.

    Raises:
        ValueError: It is not a file of the table.
    """
    with _refusing(table, data):
        read = read_parquet(io.BytesIO(data), batch_size=1 << 20).read_all()
    _check(table, read.schema)
    for column in table.columns:
        if not column.can_be_null and read.column(column.name).null_count:
            raise ValueError(f"not a file of {table.name}: column {column.name} has missing values")
    names = set(read.column_names)
    arrays: dict[str, Any] = {
        column.name: read.column(column.name).combine_chunks().cast(_TYPES[column.kind])
        if column.name in names and read.num_rows
        else array_of(column, [None] * read.num_rows)
        for column in table.columns
    }
    return RecordBatch.from_pydict(arrays)


def batches_in(table: ArchiveTable, data: bytes, lines: int) -> Iterator[RecordBatch]:
    """Yield the columns of a file as they are in it, this many lines at once.

    Raises:
        ValueError: It is not a file of the table.
    """
    with _refusing(table, data):
        reader = read_parquet(io.BytesIO(data), batch_size=lines)
    _check(table, reader.schema)
    yield from reader


@contextmanager
def _refusing(table: ArchiveTable, data: bytes) -> Iterator[None]:
    """Raise `ValueError` for a file that the library cannot read. It panics, and prints so, if the frame is wrong."""
    footer = int.from_bytes(data[-8:-4], "little")
    try:
        if not data.startswith(_MAGIC) or not data.endswith(_MAGIC) or footer > len(data) - 3 * len(_MAGIC):
            raise ValueError("no frame")
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ValueError(f"not a file of {table.name}: it is not Parquet that can be read") from error
        raise


def _check(table: ArchiveTable, schema: Schema) -> None:
    if wrong := misfits(table, schema):
        raise ValueError(f"not a file of {table.name}: {', '.join(wrong)}")


def misfits(table: ArchiveTable, schema: Schema) -> list[str]:
    """Return in what the schema of a file differs from a table: columns that every version writes, and types.

    Columns that can be null may be missing, as in files of older versions; further ones are those of newer versions.
    """
    types = {name: schema.field(name).type for name in schema.names}
    missing = [
        f"no column {column.name}" for column in table.columns if not column.can_be_null and column.name not in types
    ]
    others = [
        f"column {column.name} is not of type {column.kind}"
        for column in table.columns
        if column.name in types and types[column.name] != (_PLAIN | _LISTS)[column.kind]
    ]
    return [*missing, *others]


def notes_of(table: ArchiveTable, batches: Iterable[RecordBatch]) -> dict[str, str]:
    """Return the note of the first and the last step of columns, if files of the table state them."""
    if not table.states_steps:
        return {}
    steps = [step for batch in batches for step in batch.column("step").to_pylist()]
    return {STEPS_NOTE: f"{min(steps)} {max(steps)}"}


def columns_in(table: ArchiveTable, batch: RecordBatch) -> Columns:
    """Return the values of a table's columns by their names, without the lines that have an integer out of range."""
    columns: dict[str, Any] = {name: batch.column(name).to_pylist() for name in batch.column_names}
    for column in table.columns:
        if column.kind == "int64":
            values, most = columns[column.name], largest_of(column)
            if max(max(filter(None, values), default=0), -min(filter(None, values), default=0)) > most:
                fits = [value is None or abs(value) <= most for value in values]
                columns = {name: list(compress(of_name, fits)) for name, of_name in columns.items()}
    return columns
