"""A database for queries that come from elsewhere: it reads the files of some tables, and nothing else.

Two things hold independently. A query is read as a part of another one, where only what returns lines can be written.
And the database opens no other files, loads no extensions, sees no Python objects, and its settings are locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from otel_rl.archive.valid import literal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SETTINGS = """
SET memory_limit = '1GB'; SET threads = 2; SET temp_directory = ''; SET max_expression_depth = 200;
SET python_enable_replacements = false; SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;
SET allowed_paths = [{paths}]; SET enable_external_access = false; SET lock_configuration = true
"""


def lock(connection: duckdb.DuckDBPyConnection, paths: Iterable[Path]) -> None:
    """Let a database read these files, and nothing else, for good."""
    connection.execute(_SETTINGS.format(paths=", ".join(literal(str(path)) for path in paths)))


def selected(connection: duckdb.DuckDBPyConnection, query: str, most: int) -> duckdb.DuckDBPyRelation:
    """Return the first `most` lines that a query finds.

    Writing must be impossible here: the files that a database may read, it may also write.

    Raises:
        duckdb.Error: The query is not valid, does more than to read, or reads something else.
        ValueError: It is not one query.
    """
    inside = f"SELECT * FROM (\n{query.strip().rstrip(';')}\n) LIMIT {most}"
    statements = connection.extract_statements(inside)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise ValueError("write one query that returns lines, such as SELECT … FROM rows")
    return connection.sql(inside)
