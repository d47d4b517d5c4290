"""Queries that come from elsewhere: they read the tables of a run, and nothing else."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import duckdb
import pytest

import otel_rl
from tests.view.recorded import Shape, record

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.archive.reader import RunReader

FILE, DIRECTORY = "{file}", "{directory}"
ATTACKS = [
    f"COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false)",
    f"COPY rows TO '{DIRECTORY}/copy.csv'",
    f"SELECT 1) LIMIT 1; COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false); SELECT * FROM (SELECT 2",
    f"WITH x AS (COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false)) SELECT * FROM x",
    f"SELECT * FROM (COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false))",
    f"EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false)",
    f"EXPORT DATABASE '{DIRECTORY}'",
    f"ATTACH '{DIRECTORY}/x.db'",
    f"ATTACH '{FILE}' AS a",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_blob('/etc/pass*')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/etc/passwd')",
    f"SELECT * FROM read_text('{FILE}/../../../run.json')",
    "SELECT * FROM read_csv('http://127.0.0.1:1/x')",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "INSTALL httpfs",
    "LOAD httpfs",
    f"LOAD '{DIRECTORY}/x.duckdb_extension'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA enable_external_access",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "SELECT * FROM directory",
    "SELECT getenv('HOME')",
    "CREATE TABLE x (a INTEGER)",
    "DELETE FROM rows",
    "SELECT 1; SELECT 2",
    "SELECT 1 /* open",
    "",
]
"""Queries that write, read other files, reach a network, change settings, see Python objects, or are several."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    return otel_rl.open_run(record(tmp_path_factory.mktemp("runs") / "one", Shape(steps=6)))


def contents(directory: Path) -> dict[str, str]:
    """Return a checksum of each file."""
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in directory.rglob("*") if one.is_file()}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails(run: RunReader, attack: str) -> None:
    """It is refused, and no file is changed or made."""
    directory = run.place.path
    before = contents(directory)
    file = next(iter(sorted(directory.rglob("*.parquet"))))

    with pytest.raises((duckdb.Error, ValueError)):
        run.select(f"{attack.format(file=file, directory=directory)}\n-- rows steps spans", 5)
    assert contents(directory) == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM spans",
        "FROM rows",
        "WITH x AS (FROM steps) SELECT * FROM x;",
        "DESCRIBE rows",
        "VALUES (1)",
    ],
)
def test_a_query_is_answered(run: RunReader, query: str) -> None:
    """What returns lines can be written in each form."""
    assert len(run.select(query, 5)) > 0


def test_the_first_lines_are_returned(run: RunReader) -> None:
    """They are in the order of the query, and at most as many as were asked for."""
    found = run.select("SELECT DISTINCT step FROM rows ORDER BY step DESC -- the last ones", 3)

    assert found["step"].tolist() == [5, 4, 3]
