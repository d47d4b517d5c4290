"""Queries that come from elsewhere: they read the tables of a run, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import duckdb
import pytest

import otel_rl
from otel_rl.look.reader.locked import lock, selected
from otel_rl.look.reader.runs import RunReader
from tests.look.recorded import Shape, record

FILE, DIRECTORY = "{file}", "{directory}"
WRITES = [
    f"COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false)",
    f"COPY rows TO '{DIRECTORY}/copy.csv'",
    f"SELECT 1) LIMIT 1; COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false); SELECT * FROM (SELECT 2",
    f"WITH x AS (COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false)) SELECT * FROM x",
    f"SELECT * FROM (COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false))",
    f"EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{FILE}' (USE_TMP_FILE false)",
    f"SELECT * FROM query('COPY (SELECT 1 AS a) TO ''{FILE}'' (USE_TMP_FILE false)')",
    f"SELECT * FROM destroy_external_resource('range(1); COPY (SELECT 1) TO ''{FILE}'' (USE_TMP_FILE false); --', 1)",
    f"SELECT * FROM enable_logging(storage := 'file', storage_path := '{DIRECTORY}')",
    f"SELECT * FROM enable_profiling(save_location := '{DIRECTORY}/profile.json')",
    f"EXPORT DATABASE '{DIRECTORY}'",
    f"ATTACH '{DIRECTORY}/x.db'",
    f"LOAD '{DIRECTORY}/x.duckdb_extension'",
]
"""Queries that write into the archive, which a database that reads it may do, or next to it."""
READS = [
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
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "SELECT * FROM directory",
]
"""Queries that read other files, the network or Python objects, or change settings."""
OTHERS = [
    f"SELECT * FROM (SELECT 1) WHERE 1 IN (FROM system.main.read_parquet('{FILE}'))",
    f"ATTACH '{FILE}' AS a",
    "PRAGMA enable_external_access",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "SELECT getenv('HOME')",
    "CREATE TABLE x (a INTEGER)",
    "DELETE FROM rows",
    "SELECT 1; SELECT 2",
    "SELECT 1 /* open",
    "",
]
"""Queries that are none, or do something else than to read the tables."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    return otel_rl.open_run(record(tmp_path_factory.mktemp("runs") / "one", Shape(steps=6)))


def aimed(attack: str, run: RunReader) -> str:
    """Return an attack on a file of the archive, and on the run directory."""
    return attack.format(file=min(run.place.path.rglob("*.parquet")), directory=run.place.path)


def contents(directory: Path) -> dict[str, str]:
    """Return a checksum of each file."""
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in directory.rglob("*") if one.is_file()}


@pytest.mark.parametrize("attack", [*WRITES, *READS, *OTHERS])
def test_an_attack_fails(run: RunReader, attack: str) -> None:
    """It is refused, and no file is changed or made."""
    before = contents(run.place.path)

    with pytest.raises((duckdb.Error, ValueError)):
        run.select(f"{aimed(attack, run)}\n-- rows steps spans", 5)
    assert contents(run.place.path) == before


@pytest.mark.parametrize("attack", WRITES)
def test_the_parser_refuses_what_writes(run: RunReader, attack: str) -> None:
    """It needs no help of the settings, which let a database write what it may read."""
    with duckdb.connect(":memory:") as connection, pytest.raises((duckdb.Error, ValueError)):
        selected(connection, aimed(attack, run), 5)


@pytest.mark.parametrize("attack", READS)
def test_the_settings_refuse_what_reads_elsewhere(run: RunReader, attack: str) -> None:
    """They need no help of the parser."""
    with duckdb.connect(":memory:") as connection:
        lock(connection, run.place.path.rglob("*.parquet"))
        with pytest.raises(duckdb.Error):
            connection.execute(aimed(attack, run))


def test_the_machine_is_not_told(run: RunReader) -> None:
    """Settings name directories of the user."""
    with pytest.raises(ValueError, match="current_setting is about the machine"):
        run.select("SELECT step FROM rows WHERE name = Current_Setting('secret_directory')", 5)


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
    """Each form of a query that returns lines is valid."""
    assert len(run.select(query, 5)) > 0


def test_the_first_lines_are_returned(run: RunReader) -> None:
    """They are in the order of the query, and at most as many as were asked for."""
    found = run.select("SELECT DISTINCT step FROM rows ORDER BY step DESC -- the last ones", 3)

    assert found["step"].tolist() == [5, 4, 3]
