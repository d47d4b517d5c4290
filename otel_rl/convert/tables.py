"""Tables of texts and numbers as the journal takes them: plain cells, cut to limits, secrets redacted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, ValuesView
from itertools import islice
from typing import Any

import msgspec

from otel_rl.convert.redaction import redact
from otel_rl.errors.texts import encodable_text
from otel_rl.export import Cell

_TEXTS = (str, bytes, bytearray, memoryview)
_EXACT = frozenset({bool, float, str, type(None)})
_NUMBER_BYTES = 9  # MessagePack's largest number, with its type
_HEADER_BYTES = 5  # MessagePack's longest header of a text or of a row
_LONGEST_SECRET = 4096  # a secret as long as this is known for one although the limit of a text cuts it


class Limits(msgspec.Struct, frozen=True):
    """How much of a table is kept.

    Attributes:
        text: Characters of a cell.
        rows: Rows of a table.
        table_bytes: Bytes of all cells, as MessagePack holds them.
    """

    text: int = 16_384
    rows: int = 1_000
    table_bytes: int = 1 << 20


class Cleaned(msgspec.Struct, frozen=True):
    """A table that may leave the process.

    Attributes:
        columns: Names of the columns.
        rows: The cells, as many in a row as there are columns.
        cut_rows: How many rows were left out because of a limit.
        cut_cells: How many of the texts were cut.
        redacted: How many secrets were replaced.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    cut_rows: int = 0
    cut_cells: int = 0
    redacted: int = 0


def to_columns(data: object) -> dict[str, list[object]]:
    """Return a table as a list of cells for each column.

    Args:
        data: Sequences by column (lists, NumPy arrays, torch tensors in host memory), or a sequence of mappings
            that are its rows, or a data frame as pandas has it. What a row does not have is `None`.

    Raises:
        ValueError: The columns are none, unequal, nested, on a device, or have names that are no text.
    """
    if not isinstance(data, Mapping):
        data = _of_frame(data) if hasattr(data, "columns") and hasattr(data, "to_dict") else _of_rows(data)
    if not data:
        raise ValueError("a table needs at least one column")
    found = {_checked_name(name): _column(name, cells) for name, cells in data.items()}
    if len(set(map(len, found.values()))) > 1:
        lengths = ", ".join(f"{name} has {len(cells)}" for name, cells in found.items())
        raise ValueError(f"the columns have unequal numbers of rows: {lengths}")
    return found


def _of_frame(frame: Any) -> Mapping[object, object]:
    names = list(frame.columns)
    if len(set(names)) < len(names):
        raise ValueError("the data frame has two columns of one name")
    found: Mapping[object, object] = frame.to_dict("list")
    return found


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
        raise ValueError(f"the column name {name!r} is no text")
    return str.__str__(name)


def _column(name: object, cells: object) -> list[object]:
    dimensions = getattr(cells, "ndim", 1)
    if dimensions != 1:
        raise ValueError(f"column {name!r} has {dimensions} dimensions where one is expected")
    found = to_list(f"column {name!r}", cells)
    for kind in set(map(type, found)) - _EXACT:
        if hasattr(kind, "ndim"):
            _check_scalars(name, [cell for cell in found if type(cell) is kind])
        elif issubclass(kind, Collection) and not issubclass(kind, _TEXTS):
            raise ValueError(f"column {name!r} is nested: one of its cells is a {kind.__name__}; make a text of it")
    return found


def _check_scalars(name: object, cells: list[Any]) -> None:
    for cell in cells:
        if cell.ndim:
            raise ValueError(f"column {name!r} is nested: one of its cells has {cell.ndim} dimensions")
        if device := device_of(cell):
            raise ValueError(_waiting(f"column {name!r}", device))


def to_list(what: str, values: object) -> list[object]:
    """Return a sequence, a NumPy array or a tensor in host memory as a list; `what` says in errors what it is.

    Raises:
        ValueError: It is no sequence, or reading it would make the trainer wait for a device.
    """
    if device := device_of(values):
        raise ValueError(_waiting(what, device))
    if not isinstance(values, _TEXTS):
        call = getattr(values, "tolist", None)
        found = call() if callable(call) else values
        if isinstance(found, (Sequence, ValuesView)):
            return list(found)
    raise ValueError(f"{what} is a {type(values).__name__} where a sequence is expected")


def device_of(value: object) -> str:
    """Return the device that an array or tensor is on; empty if that is the host, or if it is neither."""
    device = getattr(value, "device", None)
    if device is None or not hasattr(value, "tolist"):
        return ""
    kind = getattr(device, "type", None) or getattr(device, "platform", None) or device  # torch, JAX, NumPy 2
    return "" if kind == "cpu" else str(device)


def _waiting(what: str, device: str) -> str:
    return f"{what} is on {device}, and reading it would make the trainer wait; use .cpu() where it waits anyway"


def clean(columns: Mapping[str, Sequence[object]], *, with_text: bool, limits: Limits) -> Cleaned:
    """Return a table with plain cells, cut to `limits`, and secrets in it redacted.

    Numbers stay numbers; any other object becomes its text. Where text may not leave the process, its cells are
    `None`. Rows are kept from the first on, until one is beyond a limit.
    """
    kept: list[_CleanRow] = []
    room = limits.table_bytes
    for cells in islice(zip(*columns.values(), strict=False), limits.rows):
        row = _clean_row(cells, limits.text if with_text else None)
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


def _clean_row(values: Sequence[object], text_limit: int | None) -> _CleanRow:
    cells: list[Cell] = []
    size, cut, redacted = _HEADER_BYTES, 0, 0
    for value in values:
        cell = _plain(value)
        if not isinstance(cell, str):
            size += _NUMBER_BYTES
        elif text_limit is None:
            cell = None
        else:
            cell, is_cut, secrets = _clean_text(cell, text_limit)
            cut += is_cut
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
            item: Any = value.item()  # type: ignore[attr-defined]
            return _plain(item) if isinstance(item, (int, float, str)) else float(item)  # a long double is its own item
    except Exception:  # what a foreign object's conversion may raise is not known
        return _text(value)
    return _text(value)


def _text(value: object) -> str:
    try:
        return str.__str__(str(value))
    except Exception:  # an object whose own text cannot be had
        return type(value).__name__


def _clean_text(text: str, limit: int) -> tuple[str, bool, int]:
    """Return a text redacted and cut, whether it was cut, and how many secrets were redacted.

    A secret that the limit cuts in two is looked for as a whole, and never shown in part.
    """
    beyond = max(len(text) - limit - _LONGEST_SECRET, 0)
    found, secrets = redact(encodable_text(text[: limit + _LONGEST_SECRET]))
    shown = max(min(limit, len(found) - _LONGEST_SECRET), 0) if beyond else limit
    return cut(found, shown, beyond), bool(beyond) or len(found) > shown, secrets


def cut(text: str, limit: int, beyond: int = 0) -> str:
    """Return the first `limit` characters, and how many more there are, the `beyond` that `text` lacks included."""
    more = len(text) - limit + beyond
    return text if more <= 0 else f"{text[:limit]}… [{more} characters more]"
