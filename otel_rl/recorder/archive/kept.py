"""Items as columns, kept in memory until they are sealed; each range of them can be written into a file."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from arro3.core import DataType, RecordBatch

from otel_rl.export import Row
from otel_rl.recorder.archive.columns import array_of, batch_of, numbers, picked, shorter
from otel_rl.recorder.archive.lines import columns_of, has_line_for_each_value, heads_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.export import Item, Machine
    from otel_rl.recorder.archive.tables import ArchiveTable

_WAITING = 1024
"""Items that are made into columns at once: as Python objects they take ten times the memory."""
_LARGEST_EXACT = 1 << 53
"""The largest integer below which a double holds all of them."""
_BATCH = 1 << 15
"""Lines of values that are made into columns at once."""


class Kept(Protocol):
    """The items of a kind since the last sealed file, as lines of one table."""

    def add(self, items: Sequence[Item]) -> None:
        """Add items behind the others."""

    def size(self) -> int:
        """Return about how many bytes of memory they take."""

    def batches(self, first: int, end: int) -> list[RecordBatch]:
        """Return the lines of the items from number `first` up to, but without, `end`. The first added item is 0."""


def kept(table: ArchiveTable) -> Kept:
    """Return a place for the lines of a table."""
    return _Values(table) if has_line_for_each_value(table) else _Lines(table)


class _Lines:
    """The lines of a table that has one for each item."""

    def __init__(self, table: ArchiveTable) -> None:
        self._table = table
        self._waiting: list[Item] = []
        self._batches: list[RecordBatch] = []

    def add(self, items: Sequence[Item]) -> None:
        self._waiting += items
        while len(self._waiting) >= _WAITING:
            self._convert()

    def size(self) -> int:
        return sum(batch.nbytes for batch in self._batches)

    def batches(self, first: int, end: int) -> list[RecordBatch]:
        self._convert()
        chosen, begin = [], 0
        for batch in self._batches:
            start, stop = max(first - begin, 0), min(end - begin, batch.num_rows)
            if start < stop:
                chosen.append(batch if stop - start == batch.num_rows else batch.slice(start, stop - start))
            begin += batch.num_rows
        return chosen

    def _convert(self) -> None:
        """Make the first items that wait into columns; always as many, so that equal columns are one."""
        first = self._waiting[:_WAITING]
        if first:
            self._batches.append(batch_of(self._table, columns_of(self._table, first)))
            del self._waiting[:_WAITING]


class _Layout:
    """Items whose values have the same names, in the same order, and the same types: one array for all their values.

    Attributes:
        items: The numbers of the items.
        values: All values of the first item, of the second one, and so on.
        exact: Integers that a double cannot hold, by place in `values`.
    """

    def __init__(self) -> None:
        self.items = array("i")
        self.values = array("d")
        self.exact: dict[int, str] = {}


class _ValuesOfName(NamedTuple):
    """The values of one name in a layout."""

    name: str  # the name
    place: int  # its place among the names of the layout
    is_measured: bool  # whether otel-rl measured it
    is_integer: bool  # whether its values are integers
    layout: _Layout  # the layout
    items: array[int]  # the numbers of the items, the first one that is wanted being 0
    span: slice  # where the values are among those of the layout


class _Values:
    """The lines of `rows` or `measurements`, one for each value of an item.

    Nearly all items of a run have the same names, so that a value takes the eight bytes of a double, and almost no work
    is done for single values. Lines are sorted by name, which halves a file, and lets a reader of one metric skip the
    others.
    """

    def __init__(self, table: ArchiveTable) -> None:
        self._columns = {column.name: column for column in table.columns}
        self._head = heads_of(table)
        self._head_of = attrgetter(*(column.field or column.name for column in self._head))
        self._heads: list[tuple[Any, ...]] = []
        self._layouts: dict[tuple[Any, ...], _Layout] = {}

    def add(self, items: Sequence[Item]) -> None:
        for item in items:
            values = cast("Row | Machine", item).values
            measured = item.measured if isinstance(item, Row) else ()
            kinds = tuple(map(type, values.values()))
            key = tuple(values), kinds, measured
            if (layout := self._layouts.get(key)) is None:
                layout = self._layouts[key] = _Layout()
            if int in kinds:
                exact = ((place, value) for place, value in enumerate(values.values(), len(layout.values)))
                layout.exact.update((place, str(value)) for place, value in exact if _is_inexact(value))
            layout.items.append(len(self._heads))
            layout.values.extend(values.values())
            self._heads.append(self._head_of(item))

    def size(self) -> int:
        return 8 * sum(len(layout.values) for layout in self._layouts.values())

    def batches(self, first: int, end: int) -> list[RecordBatch]:
        heads = [*zip(*self._heads[first:end], strict=True)]
        parts = sorted(self._parts(first, end), key=itemgetter(0))
        places = range(max((part.place for part in parts), default=0) + 1)
        has_exact = any(layout.exact for layout in self._layouts.values())
        chosen, waiting, lines = [], list[_ValuesOfName](), 0
        for part in parts:
            waiting.append(part)
            lines += len(part.items)
            if lines >= _BATCH:
                chosen.append(self._batch(heads, places, waiting, has_exact=has_exact))
                waiting, lines = [], 0
        return [*chosen, self._batch(heads, places, waiting, has_exact=has_exact)] if waiting or not chosen else chosen

    def _parts(self, first: int, end: int) -> Iterator[_ValuesOfName]:
        for (names, kinds, measured), layout in self._layouts.items():
            start, stop = (bisect_left(layout.items, number) for number in (first, end))
            if start == stop:
                continue
            items, width = shorter((number - first for number in layout.items[start:stop]), end - first), len(names)
            for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
                where = slice(start * width + place, stop * width, width)
                yield _ValuesOfName(name, place, name in measured, kind is int, layout, items, where)

    def _batch(
        self, heads: Sequence[Sequence[Any]], places: range, parts: Sequence[_ValuesOfName], *, has_exact: bool
    ) -> RecordBatch:
        """Return the lines of some names; `places` are the places of all names of the file."""
        items, at, names = (shorter((), len(counted)) for counted in (heads[0], places, range(_BATCH)))
        values, measured, integer, exact = array("d"), bytearray(), bytearray(), list[str | None]()
        for number, part in enumerate(parts):
            count = len(part.items)
            items += part.items
            at += array(at.typecode, [part.place]) * count
            names += array(names.typecode, [number]) * count
            values += part.layout.values[part.span]
            measured += bytes([part.is_measured]) * count
            integer += bytes([part.is_integer]) * count
            if has_exact:
                exact += map(part.layout.exact.get, range(*part.span.indices(len(part.layout.values))))
        once = shorter(bytes(len(values)), 1)
        arrays = {
            column.name: picked(column, of_items, items)
            if of_items.count(of_items[0]) < len(of_items)
            else picked(column, of_items[:1], once)
            for column, of_items in zip(self._head, heads, strict=True)
        }
        arrays["name"] = picked(self._columns["name"], [part.name for part in parts], names)
        arrays["place"] = picked(self._columns["place"], [*places], at)
        arrays["value"] = numbers(values, DataType.float64())
        arrays["measured"] = numbers(array("B", measured), DataType.bool())
        arrays["integer"] = numbers(array("B", integer), DataType.bool())
        if has_exact:
            arrays["exact"] = array_of(self._columns["exact"], exact)
        else:
            arrays["exact"] = picked(self._columns["exact"], [None], once)
        return RecordBatch.from_pydict({name: arrays[name] for name in self._columns})


def _is_inexact(value: float) -> bool:
    return isinstance(value, int) and abs(value) > _LARGEST_EXACT
