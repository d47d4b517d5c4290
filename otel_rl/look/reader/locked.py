"""A database for queries that come from elsewhere: it reads the files of some tables, and nothing else.

DuckDB's own parser says what a query is: one that returns lines, with few functions that take the place of a table. And
the database opens no other files, loads no extensions, sees no Python objects, and its settings are locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.look.reader.plain_paths import plain
from otel_rl.look.reader.valid import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import duckdb

# The order counts: `allowed_paths` cannot be changed without external access, and nothing once the settings are locked.
# An empty `temp_directory`, since DuckDB would otherwise spill into `.tmp` of the working directory.
_SETTINGS = """
SET home_directory = '/'; SET memory_limit = '1GB'; SET threads = 2; SET temp_directory = '';
SET max_expression_depth = 200;
SET python_enable_replacements = false; SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;
SET allowed_paths = [{paths}]; SET enable_external_access = false; SET lock_configuration = true
"""
_IN_PLACE_OF_TABLES = {"range", "generate_series", "unnest", "json_each", "json_tree"}
"""Functions in FROM that a query may use. DuckDB has others that run SQL, and each version adds some."""
_OF_MACHINE = {"current_setting"}
"""Functions about the machine, such as directories of its user."""


def lock(connection: duckdb.DuckDBPyConnection, paths: Iterable[Path]) -> None:
    """Let a database read these files, and nothing else, for good."""
    connection.execute(_SETTINGS.format(paths=", ".join(literal(plain(path)) for path in paths)))


def selected(connection: duckdb.DuckDBPyConnection, query: str, most: int) -> duckdb.DuckDBPyRelation:
    """Return the first `most` lines that a query finds.

    Nothing here may write: the files that a database may read, it may also write.

    Raises:
        duckdb.Error: The query is not valid, or reads something else.
        ValueError: It is not one query that only reads.
    """
    parsed = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0][0]
    tree = msgspec.json.decode(parsed)
    if tree["error"]:
        raise ValueError(f"write one query that returns lines, such as SELECT … FROM rows ({tree['error_message']})")
    if len(tree["statements"]) != 1:
        raise ValueError("write one query, without further ones behind it")
    if asked := {*_names(tree, "FUNCTION")} & _OF_MACHINE:
        raise ValueError(f"{', '.join(sorted(asked))} is about the machine, and cannot be asked")
    if others := {*_names(tree, "TABLE_FUNCTION")} - _IN_PLACE_OF_TABLES:
        known = ", ".join(sorted(_IN_PLACE_OF_TABLES))
        raise ValueError(f"{', '.join(sorted(others))} cannot be read; in FROM, use tables, or the functions {known}")
    # On lines of its own: a query can end in a `--` comment, which would take the parenthesis too.
    return connection.sql(f"SELECT * FROM (\n{query.strip().rstrip(';')}\n) LIMIT {most}")


def _names(parsed: Any, kind: str) -> Iterator[str]:
    """Yield the names of all functions of a kind in a parsed query; a `TABLE_FUNCTION` takes the place of a table."""
    waiting = [parsed]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("type") == kind:
                yield str(node.get("function", node)["function_name"]).lower()
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
