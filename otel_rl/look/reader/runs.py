"""The reader of runs: what they recorded, as columns and in SQL."""

from __future__ import annotations

import errno
import re
import secrets
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import duckdb
from arro3.core import Table as Arrow

from otel_rl.cli.late.plain import Plain
from otel_rl.look.reader.locked import lock, selected
from otel_rl.look.reader.plain_paths import plain
from otel_rl.look.reader.result import Result
from otel_rl.look.reader.shown import COUNTS, html_of
from otel_rl.look.reader.snapshot import Folder, Snapshot
from otel_rl.look.reader.valid import FIRSTS, LATE, literal, valid, void_of
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.archive.runs import labels_of, machines, place_of, places_of
from otel_rl.recorder.archive.tables import ROWS, STEPS, TABLES
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.files.outputs import draft_of
from otel_rl.recorder.files.private_directories import private_directory

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from otel_rl.look.reader.snapshot import Hole
    from otel_rl.look.reader.valid import Void
    from otel_rl.recorder.archive.runs import Place
    from otel_rl.recorder.archive.tables import ArchiveTable

    _Ask = Callable[[duckdb.DuckDBPyConnection], duckdb.DuckDBPyRelation | None]
    _Find = Callable[[Mapping[ArchiveTable, str], duckdb.DuckDBPyConnection], duckdb.DuckDBPyRelation | None]
    Names = str | Iterable[str] | None
    Steps = int | range | slice | tuple[int, int] | None

Attempts = Literal["valid", "all"]
_TABLES = {table.name: table for table in TABLES}
_TRIES, _PAUSE_S = 20, 0.02
"""How often files are listed while the writer deletes those of the tail, which it does every few minutes."""
_MOST_MEMORY = "1GiB"
"""Memory of DuckDB for results that need not fit into memory."""
_AT_ONCE = 10_000
"""Lines of a stream that are in memory."""
_GLOB = re.compile(r"[*?\[]")


def open_run(path: str | os.PathLike[str], *, attempts: Attempts = "valid") -> RunReader:
    """Open what a run has recorded so far; it can still go on.

    The valid history is read: if a run was resumed, the last attempt wins from its first step on. Late values are part
    of their step, and never replace a value that left in time.

    Args:
        path: The run directory. If it has no archive, `rows.jsonl` and `machine.jsonl` are read.
        attempts: `"all"` for the lines of all attempts, in which a step can be there several times.

    Raises:
        FileNotFoundError: It is not a run directory.
        ValueError: `attempts` has another value.
    """
    return RunReader([place_of(path)], attempts)


def open_runs(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, attempts: Attempts = "valid"
) -> RunsReader:
    """Open several runs as one. All tables have three more columns: `run`, `project` and `run_name`.

    Args:
        paths: A directory, a glob such as `runs/**`, or a list of them. The run directories there and below are read.
        attempts: As in `open_run`.

    Raises:
        FileNotFoundError: There is no run directory.
        ValueError: `attempts` has another value.
    """
    return RunsReader(places_of(paths), attempts)


class _Reader:
    """A view of one or several runs. Each call reads what is there at its time; what it returned stays as it is."""

    _head = ""
    """SQL for the columns that say of which run a line is."""

    def __init__(self, places: Sequence[Place], attempts: Attempts) -> None:
        if attempts not in ("valid", "all"):
            raise ValueError(f"invalid attempts={attempts!r}: must be 'valid' or 'all'")
        self._places, self._is_valid = places, attempts == "valid"
        self._plain = {place.path: Plain(place.path) for place in places}
        self._connection = duckdb.connect(":memory:")
        self._connection.execute("SET parquet_metadata_cache = true")  # each query looks at footers three times
        self._connection.execute("SET temp_directory = ''")  # by default `.tmp` of the working directory
        self._spills = False
        self._history: tuple[str, Void, bool] = "", [], False

    def rows(self, names: Names = None, steps: Steps = None) -> Result:
        """Return the values of steps, in the order of the steps.

        Args:
            names: A name, a glob such as `time/*`, or a list of them; all by default.
            steps: A step, a range or slice, or the first and the last step; all by default.
        """
        return self._lines("rows", [named(["name"], names), in_steps(steps)], "step, attempt, part, place")

    def spans(self, names: Names = None, steps: Steps = None) -> Result:
        """Return spans, in the order of their start.

        Args:
            names: Names of spans or of phases, as in `rows`.
            steps: As in `rows`.
        """
        return self._lines("spans", [named(["name", "phase"], names), in_steps(steps)], "start_unix_nano")

    def events(self, names: Names = None, steps: Steps = None) -> Result:
        """Return events, in the order of their times."""
        return self._lines("events", [named(["name"], names), in_steps(steps)], "time_unix_nano")

    def trajectories(self, steps: Steps = None) -> Result:
        """Return the trajectories that steps trained on or dropped, in the order of the steps."""
        return self._lines("trajectories", [in_steps(steps)], "step, attempt, rank, time_unix_nano, number")

    def messages(self, steps: Steps = None) -> Result:
        """Return the messages of trajectories, in the order of the steps, those of a trajectory in their order."""
        return self._lines("messages", [in_steps(steps)], "step, attempt, trace_id, span_id, number")

    def logs(self, steps: Steps = None) -> Result:
        """Return what processes printed, in the order of the times; also that of attempts whose steps were repeated."""
        return self._lines("logs", [in_steps(steps)], "time_unix_nano, host, role, rank, number")

    def measurements(self, names: Names = None) -> Result:
        """Return measurements of machines, in the order of their times."""
        return self._lines("measurements", [named(["name"], names)], "time_unix_nano, place")

    @property
    def attempts(self) -> Result:
        """The processes of all attempts."""
        return self._lines("attempts", [], "attempt, role, rank, started_unix_nano")

    @property
    def damaged(self) -> list[Path]:
        """Files whose content is not what was written; their lines are left out."""
        now = self._now()
        return [path for table in TABLES for path in now.damaged(table)]

    @property
    def holes(self) -> list[Hole]:
        """Ranges of items that no intact file has."""
        return self.holes_of(*_TABLES)

    def holes_of(self, *names: str) -> list[Hole]:
        """Return the holes of tables; the files of others, which can be large, are not read."""
        now = self._now()
        return [hole for name in names for hole in now.holes(_TABLES[name])]

    def steps_of_messages(self) -> list[range]:
        """Return the steps of messages: of each file, from the first to the last one."""
        return self._now().steps_of_messages()

    def sql(self, query: str, *, steps: Sequence[range] | None = None) -> Result:
        """Return the result of a query in DuckDB's SQL, in which all tables of the archive are views.

        The result is read at once, and stays as it is if the run goes on; a relation of DuckDB would be read again at
        each use.

        Args:
            query: The query.
            steps: The steps whose messages the query is about. Files of messages that have none of them are not read.

        Raises:
            duckdb.Error: The query is not valid.
        """
        return self._with_views(query, lambda cursor: cursor.sql(query), steps=steps)

    def select(self, query: str, most: int) -> Result:
        """Return the first lines of the result of a query that comes from elsewhere, such as a coding agent.

        It can read the tables of the archive, and nothing else: no file, network, setting or Python object.

        Args:
            query: A query, as in `sql`.
            most: The largest number of lines.

        Raises:
            duckdb.Error: The query is not valid, does more than to read, or reads something else.
            ValueError: It is not one query.
        """
        return self._with_views(query, lambda cursor: selected(cursor, query, most), is_locked=True)

    def copy(self, query: str, file: Path, options: str) -> int:
        """Write what a query finds into a file; return the number of lines. They need not fit into memory.

        Args:
            query: A query, as in `sql`.
            file: The file, which is replaced.
            options: Options of DuckDB's COPY, such as `FORMAT parquet`.

        Raises:
            duckdb.Error: The query is not valid.
            OSError: The file cannot be written, or one was deleted meanwhile since the run goes on.
        """
        with self._spilling(query) as database, draft_of(file) as draft:
            database.execute(f"COPY ({query}) TO {literal(plain(draft))} ({options})")
            return int(database.fetchall()[0][0])

    def stream(self, query: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the lines that a query finds, some at a time. They need not fit into memory.

        Raises:
            duckdb.Error: The query is not valid.
            OSError: A file was deleted meanwhile, since the run goes on.
        """
        with self._spilling(query) as database:
            database.execute(query)
            while lines := database.fetchmany(_AT_ONCE):
                yield lines

    @contextmanager
    def _spilling(self, query: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a database with the tables of a query that writes to disk what takes more memory."""
        # Nothing is tried again here: lines have been given away already.
        settings: dict[str, Any] = {"memory_limit": _MOST_MEMORY, "temp_directory": _spill_place()}
        try:
            with self._connection.cursor() as cursor, duckdb.connect(":memory:", config=settings) as database:
                _define(self._relations(_named_in(query), self._now(), cursor), database)
                yield database
        except duckdb.IOException as error:
            raise OSError(errno.EIO, f"{error}; if the run goes on, try again") from error

    def _with_views(
        self, query: str, find: _Ask, *, is_locked: bool = False, steps: Sequence[range] | None = None
    ) -> Result:
        def defined(
            relations: Mapping[ArchiveTable, str], cursor: duckdb.DuckDBPyConnection
        ) -> duckdb.DuckDBPyRelation | None:
            _define(relations, cursor)
            return find(cursor)

        return self._result(defined, _named_in(query), is_locked=is_locked, steps=steps)

    def _lines(self, name: str, conditions: Iterable[str], order: str) -> Result:
        where = " AND ".join(condition for condition in conditions if condition) or "true"
        order = f"{self._head and 'run, '}{order}"
        return self._of_one(_TABLES[name], f"SELECT * FROM {name} WHERE {where} ORDER BY {order}")

    def _latest(self, table: ArchiveTable, *keys: str) -> dict[str, dict[str, Any]]:
        """Return the values of a table with JSON objects by run, those of later lines in place of earlier ones."""
        run = "run" if self._head else "''"
        query = f"SELECT {run} AS of, {table.columns[-1].name} AS found FROM {table.name} ORDER BY {', '.join(keys)}"
        result = self._of_one(table, query)
        texts: dict[str, dict[str, Any]] = {} if self._head else {"": {}}
        for machine, text in zip(result["of"], result["found"], strict=True):
            texts.setdefault(machine, {}).update(decoded(text) or {})
        return texts

    def _of_one(self, table: ArchiveTable, query: str) -> Result:
        """Return the result of a query over one table. Unlike a view, its files are not opened once more for it."""
        return self._result(lambda lines, cursor: cursor.sql(f"WITH {table.name} AS ({lines[table]}) {query}"), [table])

    def _result(
        self,
        find: _Find,
        tables: Sequence[ArchiveTable],
        *,
        is_locked: bool = False,
        steps: Sequence[range] | None = None,
    ) -> Result:
        """Return what is found in tables. If a file was deleted while it was read, list the files again.

        A query that does not fit into memory uses a private directory, which most readers never need.
        """
        for tried in range(_TRIES):
            try:
                with ExitStack() as stack:
                    # A connection of DuckDB serves one thread at a time. Cursors can be used side by side, as by the
                    # thread that reads samples (samples/remarks/collect.py).
                    cursor = stack.enter_context(self._connection.cursor())
                    now = self._now(steps)
                    relations = self._relations(tables, now, cursor)
                    if is_locked:
                        cursor = stack.enter_context(duckdb.connect(":memory:"))  # settings are those of a database
                        lock(cursor, now.paths)
                    result = find(relations, cursor)
                    if result is None:
                        raise ValueError("the query returns no table")
                    return Result(Arrow.from_arrow(result))
            except duckdb.OutOfMemoryException:
                if self._spills or is_locked:
                    raise
                self._spills = True
                self._connection.execute(f"SET temp_directory = {literal(_spill_place())}")
            except (OSError, duckdb.IOException):
                # The writer replaces small files by one while a query reads them. Both sets are whole, so that the next
                # list of files answers (test_reader.py: test_a_run_that_is_written).
                if tried == _TRIES - 1:
                    raise
                time.sleep(_PAUSE_S)
        raise AssertionError

    def _relations(
        self, tables: Iterable[ArchiveTable], now: Snapshot, cursor: duckdb.DuckDBPyConnection
    ) -> dict[ArchiveTable, str]:
        """Return the query for the lines of each table."""
        columns = f"{self._head}lines.* EXCLUDE (origin)"
        return {table: f"SELECT {columns} FROM ({self._of_table(table, now, cursor)}) AS lines" for table in tables}

    def _of_table(self, table: ArchiveTable, now: Snapshot, cursor: duckdb.DuckDBPyConnection) -> str:
        if not self._is_valid:
            return now.lines(table)
        steps = now.lines(STEPS)
        if now.damaged(STEPS):  # the values of their rows may be intact
            steps += f" UNION ALL BY NAME SELECT origin, machine, attempt, step, part, late FROM ({now.lines(ROWS)})"
        if self._history[0] != steps:
            firsts = cursor.sql(FIRSTS.format(steps=f"({steps})", late=LATE)).fetchall()
            self._history = steps, void_of(first[:3] for first in firsts), any(late for *_, late in firsts)
        _, void, late = self._history
        return valid(table, now.lines, void, [place.id for place in self._places], late=late)

    def _now(self, steps: Sequence[range] | None = None) -> Snapshot:
        folders = []
        for origin, place in enumerate(self._places):
            archive = place.path / ARCHIVE
            names = machines(archive)
            if not names:
                archive = self._plain[place.path].archive()
                names = machines(archive)
            folders += [Folder(origin, name, archive / name) for name in names]
        return Snapshot(folders, steps)


class RunReader(_Reader):
    """A view of a run: its tables, and its latest parameters and environment."""

    def _repr_html_(self) -> str:
        """Return the run as a table, for notebooks."""
        return html_of(self.place, self.sql(COUNTS))

    @property
    def place(self) -> Place:
        """The run directory, and which run it is."""
        return self._places[0]

    @property
    def parameters(self) -> dict[str, Any]:
        """The latest value of each hyperparameter."""
        return self._latest(_TABLES["parameters"], "time_unix_nano")[""]

    @property
    def environment(self) -> dict[str, Any]:
        """The software of the last attempt: versions of packages, the source, the launcher and the command."""
        return self._latest(_TABLES["environment"], "attempt", "time_unix_nano")[""]


class RunsReader(_Reader):
    """A view of several runs, with the columns `run`, `project` and `run_name` in all tables."""

    def __init__(self, places: Sequence[Place], attempts: Attempts) -> None:
        super().__init__(places, attempts)
        texts = {
            "run": labels_of(places),
            "project": [place.project for place in places],
            "run_name": [place.name for place in places],
        }
        self._head = "".join(
            f"[{', '.join(map(literal, values))}][origin + 1] AS {name}, " for name, values in texts.items()
        )

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """The latest value of each hyperparameter, by run."""
        return self._latest(_TABLES["parameters"], "time_unix_nano")

    @property
    def environment(self) -> dict[str, dict[str, Any]]:
        """The software of the last attempt of each run."""
        return self._latest(_TABLES["environment"], "attempt", "time_unix_nano")


def _spill_place() -> str:
    """Return where a database in memory spills to, by default `.tmp` of the working directory; empty for nowhere.

    DuckDB makes the directory if it is needed, and removes it.
    """
    try:
        return str(private_directory() / f"spill.{secrets.token_hex(8)}")
    except OSError:
        return ""


def _named_in(query: str) -> list[ArchiveTable]:
    """Return the tables that a query may read; one too many costs the footers of its files, one too few the answer."""
    words = set(re.findall(r"\w+", query.lower()))
    return [table for table in TABLES if table.name in words]


def _define(relations: Mapping[ArchiveTable, str], database: duckdb.DuckDBPyConnection) -> None:
    """Make a view of each table."""
    for table, lines in relations.items():
        database.execute(f"CREATE TEMP VIEW {table.name} AS {lines}")


def named(columns: Sequence[str], names: Names) -> str:
    """Return the condition, in SQL, that one of the columns has one of the names, which can be globs."""
    if names is None:
        return ""
    wanted = [names] if isinstance(names, str) else list(names)
    exact = ", ".join(map(literal, wanted)) or "NULL"
    conditions = []
    for column in columns:
        conditions.append(f"{column} IN ({exact})")
        conditions += (f"{column} GLOB {literal(name)}" for name in wanted if _GLOB.search(name))
    return f"({' OR '.join(conditions)})"


def in_steps(steps: Steps) -> str:
    """Return the condition, in SQL, that a line is of one of the steps; empty if all are meant."""
    match steps:
        case None:
            return ""
        case int():
            return f"step = {steps}"
        case (first, last):
            return f"step BETWEEN {int(first)} AND {int(last)}"
        case range() if steps.step > 0:
            first, end, stride = steps.start, steps.stop, steps.step
        case slice() if (steps.step or 1) > 0:
            first, end, stride = steps.start or 0, steps.stop, steps.step or 1
        case _:
            raise ValueError(f"invalid steps={steps!r}: must be a step, a range, a slice, or (first, last)")
    conditions = [f"step >= {int(first)}"]
    conditions += [] if end is None else [f"step < {int(end)}"]
    conditions += [] if stride == 1 else [f"(step - {int(first)}) % {int(stride)} = 0"]
    return " AND ".join(conditions)
