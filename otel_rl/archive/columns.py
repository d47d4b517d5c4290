"""Columns of tables: from items, merged, and as Parquet files."""

from __future__ import annotations

import io
from array import array
from collections import defaultdict
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from arro3.core import Array, DataType, RecordBatch, dictionary_dictionary, dictionary_indices
from arro3.core import Table as Arrow
from arro3.io import read_parquet, write_parquet

from otel_rl.archive.lines import LINES, VALUE_HEADS
from otel_rl.export import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from arro3.io._parquet import ParquetEncoding

    from otel_rl.archive.lines import Line
    from otel_rl.archive.tables import Column, Table
    from otel_rl.export import Item, Machine

_REPEATED = DataType.dictionary(DataType.int32(), DataType.string())
_TYPES = {
    "int64": DataType.int64(),
    "double": DataType.float64(),
    "bool": DataType.bool(),
    "id": DataType.string(),
    "text": _REPEATED,
    "json": _REPEATED,
}
_ENCODINGS: dict[str, ParquetEncoding] = {
    "step": "delta_binary_packed",
    "time_unix_nano": "delta_binary_packed",
    "start_unix_nano": "delta_binary_packed",
    "duration_ns": "delta_binary_packed",
    "span_id": "delta_byte_array",
    "value": "byte_stream_split",
}
_LARGEST_EXACT = 1 << 53
"""The largest integer below which a double holds all of them."""
_ROW_GROUP = 20_480
"""Lines of a row group: a reader of one metric of one file skips the others."""


def columns_of(table: Table, items: Sequence[Item]) -> RecordBatch:
    """Return the lines that items have in a table.

    The values of rows and of machines are sorted by name, which halves the file, and lets a reader of one metric skip
    the others.
    """
    of_values = table in VALUE_HEADS
    arrays = _arrays_of_values(table, items) if of_values else _arrays(table.columns, map(LINES[table], items))
    return RecordBatch.from_pydict({column.name: arrays[column.name] for column in table.columns})


def merged(table: Table, batches: Sequence[RecordBatch]) -> RecordBatch:
    """Return the lines of several batches in one, those of values sorted by name again."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else batches[0]
    (whole,) = Arrow.from_batches(filled).combine_chunks().to_batches()
    if table not in VALUE_HEADS:
        return whole
    names = whole.column("name")
    known = dictionary_dictionary(names).to_pylist()
    places: defaultdict[str, list[range]] = defaultdict(list)
    first = 0
    for code, run in groupby(dictionary_indices(names).to_pylist()):
        end = first + len(list(run))
        places[known[code]].append(range(first, end))
        first = end
    order = array("i", chain.from_iterable(one for name in sorted(places) for one in places[name]))
    return whole.take(Array.from_buffer(order))


def to_parquet(batch: RecordBatch) -> bytes:
    """Return columns as a Parquet file."""
    file = io.BytesIO()
    encodings: dict[str | Sequence[str], ParquetEncoding] = {
        name: way for name, way in _ENCODINGS.items() if name in batch.column_names
    }
    write_parquet(
        batch,
        file,
        compression="zstd(3)",
        column_encoding=encodings,
        column_dictionary_enabled=dict.fromkeys(encodings, False),
        max_row_group_size=_ROW_GROUP,
        writer_version="parquet_2_0",
        skip_arrow_metadata=True,
    )
    return file.getvalue()


def from_parquet(table: Table, data: bytes) -> RecordBatch:
    """Return the columns of a file; those that a newer version has added are null."""
    found = read_parquet(io.BytesIO(data), batch_size=1 << 20).read_all()
    names = set(found.column_names)
    arrays: dict[str, Any] = {
        column.name: found.column(column.name).combine_chunks().cast(_TYPES[column.kind])
        if column.name in names and found.num_rows
        else _array(column, [None] * found.num_rows)
        for column in table.columns
    }
    return RecordBatch.from_pydict(arrays)


def lines_in(batch: RecordBatch) -> list[Line]:
    """Return the lines of columns."""
    return list(zip(*(batch.column(name).to_pylist() for name in batch.column_names), strict=True))


def _arrays(columns: Sequence[Column], lines: Iterable[Line]) -> dict[str, Array]:
    """Return the columns of lines."""
    by_column = list(zip(*lines, strict=True)) or [() for _ in columns]
    return {column.name: _array(column, values) for column, values in zip(columns, by_column, strict=True)}


def _array(column: Column, values: Sequence[Any]) -> Array:
    """Return values as an array; most columns have one value in all lines of a file."""
    if values and column.kind != "double" and values.count(values[0]) == len(values):  # 0.0 equals -0.0
        one = _array_of(column, values[:1])
        return one.take(Array.from_buffer(array("i", bytes(4 * len(values)))))
    return _array_of(column, values)


def _array_of(column: Column, values: Sequence[Any]) -> Array:
    if _TYPES[column.kind] is not _REPEATED:
        return Array(values, _TYPES[column.kind])
    places: dict[str | None, int] = {}
    indices = array("i", [places.setdefault(value, len(places)) for value in values])
    return _repeated(list(places), indices)


def _repeated(texts: Sequence[str | None], indices: array[int]) -> Array:
    """Return texts as an array; each is converted once."""
    return Array(texts, DataType.string()).cast(_REPEATED).take(_numbers(indices, DataType.int32()))


class _Layout:
    """Items whose values have the same names, in the same order, and the same types: one array for all their values."""

    def __init__(self) -> None:
        self.items = array("i")
        self.values = array("d")


def _arrays_of_values(table: Table, items: Sequence[Item]) -> dict[str, Array]:
    """Return the columns of `rows` or `measurements`.

    Nearly all items of a run have the same names, so that almost no work is done for single values.
    """
    layouts: defaultdict[tuple[Any, ...], _Layout] = defaultdict(_Layout)
    for index, item in enumerate(items):
        values = cast("Row | Machine", item).values
        measured = item.measured if isinstance(item, Row) else ()
        layout = layouts[tuple(values), tuple(map(type, values.values())), measured]
        layout.items.append(index)
        layout.values.extend(values.values())
    of_item, places, names, all_values = array("i"), array("i"), array("i"), array("d")
    exact: list[str | None] = []
    flags = {"measured": bytearray(), "integer": bytearray()}
    parts = sorted(((name, place, key) for key in layouts for place, name in enumerate(key[0])), key=itemgetter(0))
    for number, (name, place, key) in enumerate(parts):
        layout, count = layouts[key], len(layouts[key].items)
        of_item += layout.items
        all_values += layout.values[place :: len(key[0])]
        names += array("i", [number]) * count
        places += array("i", [place]) * count
        flags["measured"] += bytes([name in key[2]]) * count
        flags["integer"] += bytes([key[1][place] is int]) * count
        if key[1][place] is int:
            integers = (cast("Row | Machine", items[index]).values[name] for index in layout.items)
            exact += [str(value) if abs(value) > _LARGEST_EXACT else None for value in integers]
        else:
            exact += [None] * count
    columns, line_of = VALUE_HEADS[table]
    lines = _numbers(of_item, DataType.int32())
    found = {name: column.take(lines) for name, column in _arrays(columns, map(line_of, items)).items()}
    found |= {name: _numbers(array("B", bits), DataType.bool()) for name, bits in flags.items()}
    found["name"] = _repeated([name for name, *_ in parts], names)
    found["exact"] = _array(table.columns[-1], exact)
    return found | {"value": _numbers(all_values, DataType.float64()), "place": _numbers(places, DataType.int64())}


def _numbers(values: array[Any], kind: DataType) -> Array:
    return Array.from_buffer(values).cast(kind) if values else Array([], kind)
