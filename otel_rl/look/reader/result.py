"""The result of a query: columns as NumPy arrays, and as tables of other libraries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from arro3.core import Table as Arrow

    Column = np.ndarray[Any, np.dtype[Any]]


class Result:
    """The lines that a query found. They stay as they are, also if the run goes on.

    `result["value"]` is a column as a NumPy array, which is made when it is asked for. A column with missing values is
    a masked array; one of texts has `None` for them.
    """

    def __init__(self, table: Arrow) -> None:
        self._table = table
        self._made: dict[str, Column] = {}

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in their order."""
        return list(self._table.column_names)

    def __len__(self) -> int:
        return self._table.num_rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __getitem__(self, name: str) -> Column:
        if name not in self._made:
            if name not in self.columns:
                raise KeyError(f"unknown column {name!r}: the columns are {', '.join(self.columns)}")
            self._made[name] = _column(self._table.column(name))
        return self._made[name]

    def __repr__(self) -> str:
        return f"<{len(self)} lines: {', '.join(self.columns)}>"

    def __str__(self) -> str:
        """Return the lines as DuckDB draws them; of many, the first and the last ones."""
        import duckdb

        with duckdb.connect(":memory:") as connection:
            return str(connection.from_arrow(self._table))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the lines to a library that reads Arrow's C interface; nothing is copied."""
        return self._table.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame of pandas.

        Raises:
            ImportError: Pandas is not installed.
        """
        pandas: Any = _imported("pandas")

        def converted(column: Column) -> Any:
            if not isinstance(column, np.ma.MaskedArray):
                return column
            if column.dtype.kind == "f":
                return column.filled(np.nan)
            of_kind = pandas.arrays.BooleanArray if column.dtype.kind == "b" else pandas.arrays.IntegerArray
            return of_kind(column.data, np.ma.getmaskarray(column))

        frame: pd.DataFrame = pandas.DataFrame({name: converted(self[name]) for name in self.columns})
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return a data frame of Polars.

        Raises:
            ImportError: Polars is not installed.
        """
        frame: pl.DataFrame = _imported("polars").DataFrame(self._table)
        return frame

    def to_arrow(self) -> pa.Table:
        """Return a table of PyArrow.

        Raises:
            ImportError: PyArrow is not installed.
        """
        table: pa.Table = _imported("pyarrow").table(self._table)
        return table


def lines_of(result: Result) -> list[tuple[Any, ...]]:
    """Return the lines of a small result as plain values; `None` for missing ones."""
    return list(zip(*(result[name].tolist() for name in result.columns), strict=True))


def _imported(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{package} is not installed: pip install {package}") from error


def _column(chunks: Any) -> Column:
    dtype = _TYPES.get(str(chunks.type).strip().removeprefix("arro3.core.DataType<").removesuffix(">"))
    if dtype is None:
        # `np.array` of lists that are equally long would make a matrix of them.
        texts = np.empty(len(chunks), object)
        texts[:] = chunks.to_pylist()
        return texts
    if not chunks.null_count:
        numbers: Column = np.asarray(chunks.to_numpy() if len(chunks) else [], dtype)
        return numbers
    values = chunks.to_pylist()
    filled = np.array([0 if value is None else value for value in values], dtype)
    return np.ma.MaskedArray(filled, [value is None for value in values])


_TYPES: dict[str, np.dtype[Any]] = {
    "Boolean": np.dtype(np.bool_),
    "Float32": np.dtype(np.float32),
    "Float64": np.dtype(np.float64),
    **{f"{sign}Int{bits}": np.dtype(f"{sign}int{bits}".lower()) for sign in ("", "U") for bits in (8, 16, 32, 64)},
}
"""Types of Arrow with an equal one in NumPy; columns of others are Python objects.

DuckDB's `sum` of integers is one of the others, a HUGEINT: queries cast it to BIGINT or DOUBLE.
"""
