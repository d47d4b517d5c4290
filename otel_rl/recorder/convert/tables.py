"""Conversion of tables for the journal: plain cells, truncated to limits, with secrets redacted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, ValuesView
from itertools import islice
from typing import Any

import msgspec

from otel_rl.export import Cell
from otel_rl.recorder.errors.texts import encodable_text
from otel_rl.recorder.secrets import LONGEST_SECRET, REDACTED, hides, redact

_TEXTS = (str, bytes, bytearray, memoryview)
_EXACT = frozenset({bool, float, str, type(None)})
_NUMBER_BYTES = 9  # the largest encoding of a number in MessagePack
_HEADER_BYTES = 5  # the largest header of a text or a row in MessagePack


class Limits(msgspec.Struct, frozen=True):
    """The limits of a table: characters of a cell, rows, and the size of all cells in MessagePack, in bytes."""

    text: int = 16_384
    rows: int = 1_000
    table_bytes: int = 1 << 20


class Cleaned(msgspec.Struct, frozen=True):
    """A table that may leave the process.

    `cut_rows` counts the rows left out because of a limit, `cut_cells` the truncated texts, `redacted` the secrets.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    cut_rows: int = 0
    cut_cells: int = 0
    redacted: int = 0


def to_columns(data: object) -> dict[str, list[object]]:
    """Return a table as a list of cells for each column.

    Args:
        data: Sequences by column (lists, NumPy arrays, torch tensors in host memory), or a sequence of mappings, one
            per row, or a pandas data frame. Cells missing in a row are `None`.

    Raises:
        ValueError: There are no columns, or they differ in length, are nested or on a device, or a name is not text.
    """
    if not isinstance(data, Mapping):
        data = _of_frame(data) if hasattr(data, "columns") and hasattr(data, "to_dict") else _of_rows(data)
    if not data:
        raise ValueError("a table needs at least one column")
    columns = {_checked_name(name): _column(name, cells) for name, cells in data.items()}
    if len(set(map(len, columns.values()))) > 1:
        lengths = ", ".join(f"{name} has {len(cells)}" for name, cells in columns.items())
        raise ValueError(f"the columns have unequal numbers of rows: {lengths}")
    return columns


def _of_frame(frame: Any) -> Mapping[object, object]:
    names = list(frame.columns)
    if len(set(names)) < len(names):
        raise ValueError("the data frame has two columns of one name")
    columns: Mapping[object, object] = frame.to_dict("list")
    return columns


def _of_rows(data: object) -> Mapping[object, object]:
    if not isinstance(data, Collection) or isinstance(data, _TEXTS):
        raise ValueError(f"a table is a mapping of columns or a sequence of rows, not {type(data).__name__}")
    rows = list(data)
    for row in rows:
        if not isinstance(row, Mapping):
            raise ValueError(f"a row is a mapping from column to cell, not {type(row).__name__}")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError(f"invalid column name {name!r}: must be a non-empty str")
    return str.__str__(name)


def _column(name: object, cells: object) -> list[object]:
    dimensions = getattr(cells, "ndim", 1)
    if dimensions != 1:
        raise ValueError(f"column {name!r} has {dimensions} dimensions where one is expected")
    converted = to_list(f"column {name!r}", cells)
    for kind in set(map(type, converted)) - _EXACT:
        if hasattr(kind, "ndim"):
            _check_scalars(name, [cell for cell in converted if type(cell) is kind])
        elif issubclass(kind, Collection) and not issubclass(kind, _TEXTS):
            raise ValueError(f"column {name!r} is nested: one of its cells is a {kind.__name__}; convert it to a str")
    return converted


def _check_scalars(name: object, cells: list[Any]) -> None:
    for cell in cells:
        if cell.ndim:
            raise ValueError(f"column {name!r} is nested: one of its cells has {cell.ndim} dimensions")
        if device := device_of(cell):
            raise ValueError(_waiting(f"column {name!r}", device))


def to_list(what: str, values: object) -> list[object]:
    """Convert a sequence, a NumPy array or a tensor in host memory to a list; `what` is its name in errors.

    Raises:
        ValueError: It is not a sequence, or reading it would make the trainer wait for a device.
    """
    if device := device_of(values):
        raise ValueError(_waiting(what, device))
    if not isinstance(values, _TEXTS):
        if _is_time(values):
            values = [*values]  # type: ignore[misc] # an array; its `tolist` has integers
        call = getattr(values, "tolist", None)
        sequence = call() if callable(call) else values
        if isinstance(sequence, (Sequence, ValuesView)):
            return list(sequence)
    raise ValueError(f"{what} is a {type(values).__name__} where a sequence is expected")


def _is_time(value: object) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M")


def device_of(value: object) -> str:
    """Return the device of an array or tensor; empty for the host and for other objects."""
    device = getattr(value, "device", None)
    if device is None or not hasattr(value, "tolist"):
        return ""
    kind = getattr(device, "type", None) or getattr(device, "platform", None) or device  # torch, JAX, NumPy 2
    return "" if kind == "cpu" else str(device)


def _waiting(what: str, device: str) -> str:
    return f"{what} is on {device}, and reading it would make the trainer wait; use .cpu() where it waits anyway"


def clean(columns: Mapping[str, Sequence[object]], *, with_text: bool, limits: Limits) -> Cleaned:
    """Convert the cells to plain values, truncate the table to `limits`, and redact secrets.

    Numbers stay numbers; other objects become their text.

    Args:
        columns: The cells of each column.
        with_text: If false, cells with text become `None`, because the user has not allowed texts to be recorded.
        limits: Rows are kept from the first one until one exceeds a limit.
    """
    kept: list[_CleanRow] = []
    room = limits.table_bytes
    names = [*columns]
    for cells in islice(zip(*columns.values(), strict=False), limits.rows):
        row = _clean_row(cells, names, limits.text if with_text else None)
        room -= row.size
        if room < 0:
            break
        kept.append(row)
    return Cleaned(
        tuple(map(encodable_text, columns)),
        [row.cells for row in kept],
        cut_rows=max(map(len, columns.values()), default=0) - len(kept),
        cut_cells=sum(row.cut for row in kept),
        redacted=sum(row.redacted for row in kept),
    )


class _CleanRow(msgspec.Struct):
    cells: tuple[Cell, ...]
    size: int
    cut: int
    redacted: int


def _clean_row(values: Sequence[object], names: Sequence[str], text_limit: int | None) -> _CleanRow:
    cells: list[Cell] = []
    size, cut, redacted = _HEADER_BYTES, 0, 0
    for value, name in zip(values, names, strict=True):
        cell = _plain(value)
        if hides(name, cell):
            cell = REDACTED
            redacted += 1
        if not isinstance(cell, str):
            size += _NUMBER_BYTES
        elif text_limit is None:
            cell = None
        else:
            cell, more, secrets = clean_text(cell, text_limit, name)
            cell = noted(cell, more)
            cut += more > 0
            redacted += secrets
            size += _HEADER_BYTES + (len(cell) if cell.isascii() else len(cell.encode()))
        cells.append(cell)
    return _CleanRow(tuple(cells), size, cut, redacted)


def _plain(value: object) -> Cell:
    kind = type(value)
    if kind in _EXACT:
        return value  # type: ignore[return-value] # its type was just looked at
    try:
        if isinstance(value, int):
            return int(value) if -(1 << 63) <= value < 1 << 64 else float(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, (bytes, bytearray)):
            return value.decode("utf-8", "backslashreplace")
        if device := device_of(value):
            return f"{kind.__name__} on {device}"
        if hasattr(kind, "ndim") and hasattr(kind, "item"):
            if _is_time(value):
                return _text(value)
            if getattr(value, "mask", False):
                return None
            item: Any = value.item()  # type: ignore[attr-defined]
            return _plain(item) if isinstance(item, (int, float, str)) else float(item)  # of a long double
    except Exception:  # conversions of unknown objects can raise anything
        return _text(value)
    return _text(value)


def _text(value: object) -> str:
    try:
        return str.__str__(str(value))
    except Exception:  # an object whose `str` raises
        return type(value).__name__


def clean_text(text: str, limit: int, name: str) -> tuple[str, int, int]:
    """Return a text redacted and truncated, and the numbers of characters that were cut and of secrets.

    A secret that crosses the limit is redacted as a whole.
    """
    beyond = max(len(text) - limit - LONGEST_SECRET, 0)
    redacted, secrets = redact(encodable_text(text[: limit + LONGEST_SECRET]), name)
    shown = max(min(limit, len(redacted) - LONGEST_SECRET), 0) if beyond else limit
    return redacted[:shown], max(len(redacted) - shown + beyond, 0), secrets


def cut(text: str, limit: int) -> str:
    """Return the first `limit` characters and a note of how many were cut."""
    return noted(text[:limit], max(len(text) - limit, 0))


def noted(text: str, more: int) -> str:
    """Return a text with a note of how many characters were cut from its end."""
    return f"{text}… [{more} characters more]" if more else text
