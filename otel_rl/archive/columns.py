"""Columns of tables: from values and from Parquet files, and as such files."""

from __future__ import annotations

import io
import os
import re
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from arro3.core import Array, DataType, Field, RecordBatch, RecordBatchReader, list_array
from arro3.io import read_parquet, write_parquet

from otel_rl.journal.own_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from arro3.io._parquet import ParquetEncoding

    from otel_rl.archive.lines import Line
    from otel_rl.archive.tables import Column, Kind, Table

_REPEATED = DataType.dictionary(DataType.int32(), DataType.string())
_PLAIN = {
    "int64": DataType.int64(),
    "double": DataType.float64(),
    "bool": DataType.bool(),
    **dict.fromkeys(("id", "text", "json"), DataType.string()),
}
_OF_LISTS = {
    "int64s": ("i", DataType.int64()),
    "doubles": ("d", DataType.float64()),
    "bools": ("B", DataType.bool()),
    "texts": ("", DataType.string()),
}
"""For each kind of list, the code of the arrays of numbers that it is made of, and the type of its elements."""
_LISTS = {kind: DataType.list(Field("element", of)) for kind, (_, of) in _OF_LISTS.items()}
_TYPES = _PLAIN | dict.fromkeys(("text", "json"), _REPEATED) | _LISTS
_ELEMENT = "list", "element"
_ENCODINGS: dict[str | Sequence[str], ParquetEncoding] = {
    "step": "delta_binary_packed",
    "time_unix_nano": "delta_binary_packed",
    "start_unix_nano": "delta_binary_packed",
    "duration_ns": "delta_binary_packed",
    "span_id": "delta_byte_array",
    "value": "byte_stream_split",
    ("tokens", *_ELEMENT): "delta_binary_packed",
    ("logprobs", *_ELEMENT): "byte_stream_split",
    ("trainer_logprobs", *_ELEMENT): "byte_stream_split",
}
"""Encodings by the path of a column; log-probabilities of 32 bits take half as much split by bytes."""
YOUNG, SEALED = "snappy", "zstd(1)"
"""Compression: half the time to write for files that are soon deleted, a tenth less space for those that stay."""
_ROW_GROUP = 1 << 18
"""Lines of a row group, usually all of a file. DuckDB opens each group, and skips pages by first and last name."""
_NOTES_BYTES = 4096
"""Bytes at the end of a file with its notes; of the footer, only the order of each column's values is behind them."""
_STEPS_NOTE = "steps"
"""The note with the first and the last step of a file of messages, by which most files need not be read."""
_KEYS = {"b": DataType.int8(), "h": DataType.int16(), "i": DataType.int32()}
"""The types of places in arrays of Python, and in columns."""


def batch_of(table: Table, columns: Iterable[Sequence[Any]]) -> RecordBatch:
    """Return columns of values, in the order of the table's."""
    pairs = zip(table.columns, columns, strict=True)
    return RecordBatch.from_pydict({column.name: array_of(column, values) for column, values in pairs})


def array_of(column: Column, values: Sequence[Any]) -> Array:
    """Return the values of a column; most columns have one value in all lines, and share one array for it."""
    if column.kind in _OF_LISTS:
        return _lists(column.kind, values)
    kind, plain = _TYPES[column.kind], _PLAIN[column.kind]
    if values and values[0] == values[-1] and column.kind != "double" and values.count(values[0]) == len(values):
        return _repeated(column.kind, values[0], len(values))  # 0.0 equals -0.0
    found = Array(values, plain)
    return found if kind is plain else found.cast(kind)


def _lists(kind: Kind, values: Sequence[Sequence[Any] | None]) -> Array:
    """Return lists as a column of lists; an empty one is null."""
    code, element = _OF_LISTS[kind]
    flat: Any = array(code) if code else []
    ends = array("i", [0])
    for one in values:
        flat.extend(one or ())
        ends.append(len(flat))
    is_null = numbers(array("B", [not one for one in values]), DataType.bool())
    return list_array(
        numbers(ends, DataType.int32()),
        numbers(flat, element) if code else Array(flat, element),
        type=_LISTS[kind],
        mask=is_null,
    )


@lru_cache(64)
def _repeated(kind: Kind, value: Any, count: int) -> Array:
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


def to_parquet(batches: list[RecordBatch], *, compression: str, notes: dict[str, str] | None = None) -> memoryview:
    """Return columns, which can be in several parts, as a Parquet file with notes in its footer.

    The list of parts is emptied: each part is freed when it is in the file.
    """
    file = io.BytesIO()
    names = set(batches[0].column_names)
    encodings = {path: way for path, way in _ENCODINGS.items() if (path if isinstance(path, str) else path[0]) in names}
    reader = RecordBatchReader.from_batches(batches[0].schema, batches)
    batches.clear()
    write_parquet(
        reader,
        file,
        compression=compression,
        column_encoding=encodings,
        column_dictionary_enabled=dict.fromkeys(encodings, False),
        key_value_metadata=notes,
        max_row_group_size=_ROW_GROUP,
        writer_version="parquet_2_0",
        skip_arrow_metadata=True,
    )
    return file.getbuffer()


def from_parquet(table: Table, data: bytes) -> RecordBatch:
    """Return the columns of a file; those that a newer version has added are null."""
    found = read_parquet(io.BytesIO(data), batch_size=1 << 20).read_all()
    names = set(found.column_names)
    arrays: dict[str, Any] = {
        column.name: found.column(column.name).combine_chunks().cast(_TYPES[column.kind])
        if column.name in names and found.num_rows
        else array_of(column, [None] * found.num_rows)
        for column in table.columns
    }
    return RecordBatch.from_pydict(arrays)


def steps_note(batches: Iterable[RecordBatch]) -> dict[str, str]:
    """Return the note of the first and the last step of columns."""
    steps = [step for batch in batches for step in batch.column("step").to_pylist()]
    return {_STEPS_NOTE: f"{min(steps)} {max(steps)}"}


@lru_cache(1 << 16)
def steps_in(path: Path) -> range | None:
    """Return the steps from the first to the last one of a file, which never changes; `None` if it has no such note.

    Raises:
        OSError: It cannot be read now.
    """
    found = re.fullmatch(r"(\d{1,18}) (\d{1,18})", note_in(path, _STEPS_NOTE), re.ASCII)
    return range(int(found[1]), int(found[2]) + 1) if found else None


def note_in(path: Path, name: str) -> str:
    """Return a note in the footer of a file; empty without one. Its value has at most 127 bytes.

    The bytes are searched: the library has no way to a footer that a damaged file does not break.

    Raises:
        OSError: It cannot be read now.
    """
    with open_regular(path) as file:
        file.seek(-min(_NOTES_BYTES, path.stat().st_size), os.SEEK_END)
        end = file.read()
    found = re.search(rb"(?s)\x18%c%s\x18([\x00-\x7f])" % (len(name), re.escape(name.encode())), end)
    return end[found.end() : found.end() + found[1][0]].decode(errors="replace") if found else ""


def lines_in(batch: RecordBatch) -> list[Line]:
    """Return the lines of columns."""
    return list(zip(*(batch.column(name).to_pylist() for name in batch.column_names), strict=True))
