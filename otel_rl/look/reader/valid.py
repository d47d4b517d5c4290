"""The valid history of runs, in SQL.

A run that resumes from a checkpoint repeats steps. The last attempt wins: from the first step of an attempt on, the
rows of all earlier attempts are void. If an attempt marks steps, its first step is the first that it began: a value
that it only logs for an earlier step, such as an evaluation, voids nothing. Late rows are merged into the row of their
step: they add names, and never replace a value that left in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.archive.tables import ATTEMPTS, HANGS, ROWS, SPANS, STEPS, TRAJECTORIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_rl.recorder.archive.tables import ArchiveTable

LATE = "(late OR part > 0)"
FIRSTS = """
SELECT origin, attempt,
    coalesce(min(least(begins, step)) FILTER (NOT late AND trace_id <> ''), min(least(begins, step)) FILTER (NOT late)),
    bool_or({late})
FROM {steps} GROUP BY ALL
"""
"""The first step of each attempt of each run, and whether it has late rows."""
Void = list[tuple[int, int, int]]
"""Runs and attempts, with the first step that a later attempt recorded."""


def void_of(firsts: Iterable[tuple[int, int, int | None]]) -> Void:
    """Return from which step on an attempt is void."""
    void: Void = []
    least: dict[int, int] = {}
    for origin, attempt, first in sorted(firsts, key=lambda step: (step[0], -step[1])):
        if origin in least:
            void.append((origin, attempt, least[origin]))
        if first is not None:
            least[origin] = min(first, least.get(origin, first))
    return void


def valid(
    table: ArchiveTable, raw: Callable[[ArchiveTable], str], void: Void, ids: Sequence[str], *, late: bool
) -> str:
    """Return a query for the lines of a table that are part of the valid history.

    Args:
        table: The table.
        raw: A function that returns the query for all lines of a table, with the number of the run in `origin`.
        void: From which step on attempts are void.
        ids: The ids of the runs, as far as they are known.
        late: Whether there are late rows.
    """
    lines = raw(table)
    if table in _LAST:
        return f"SELECT * FROM ({lines}) QUALIFY row_number() OVER ({_LAST[table]}) = 1"
    if void and table.history == "step":
        lines = _without(lines, void)
    elif void and table.history == "trace":
        lines = _untraced(table, raw, void, ids)
    return _merged(lines, raw) if late and table is ROWS else lines


_WHO = "PARTITION BY origin, machine, attempt, role, rank, host, pid, started_unix_nano"
_LAST = {
    ATTEMPTS: f"{_WHO} ORDER BY ended_unix_nano DESC NULLS LAST, length(devices) DESC NULLS LAST",
    HANGS: f"{_WHO}, phase, part ORDER BY time_unix_nano DESC, ended_unix_nano DESC NULLS LAST",
}
"""The order of the lines of a process or of a hang; the first one is valid, since it says most."""


_IS_VOID = "void.origin = lines.origin AND void.attempt = lines.attempt AND lines.step >= void.void_from"
_IN_VOID_STEP = """void.origin = lines.origin AND lines.step >= void.void_from
    AND lines.trace_id = left(sha256(concat(void.id, '/', void.attempt, '/', lines.step)), 32)"""
"""The trace id of a step is a hash of run id, attempt and step."""


def _without(lines: str, void: Void) -> str:
    return f"SELECT lines.* FROM ({lines}) AS lines ANTI JOIN {_relation(void)} ON {_IS_VOID}"


def _untraced(table: ArchiveTable, raw: Callable[[ArchiveTable], str], void: Void, ids: Sequence[str]) -> str:
    """Leave out the lines in the traces of void steps, and of trajectories of void steps alone."""
    traces = "UNION ALL ".join(
        f"SELECT lines.origin, trace_id, void.origin IS NOT NULL AS is_void FROM ({raw(source)}) AS lines"
        f" LEFT JOIN {_relation(void)} ON {_IS_VOID} WHERE trace_id <> ''\n"
        for source in (STEPS, TRAJECTORIES)
    )
    void_traces = f"(SELECT origin, trace_id FROM ({traces}) GROUP BY ALL HAVING bool_and(is_void))"
    kept = f"SELECT lines.* FROM ({raw(table)}) AS lines ANTI JOIN {void_traces} USING (origin, trace_id)"
    if table is SPANS:  # the roots of steps have their attempt
        kept = _without(kept, void)
    known = [(*source, ids[source[0]]) for source in void if ids[source[0]]]
    if not known:
        return kept
    return f"SELECT lines.* FROM ({kept}) AS lines ANTI JOIN {_relation(known, ', id')} ON {_IN_VOID_STEP}"


def _relation(void: Sequence[tuple[int | str, ...]], more: str = "") -> str:
    lines = ", ".join(f"({', '.join(map(literal, line))})" for line in void)
    return f"(VALUES {lines}) AS void (origin, attempt, void_from{more})"


def literal(value: int | str) -> str:
    """Return a value as SQL."""
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _merged(lines: str, raw: Callable[[ArchiveTable], str]) -> str:
    """Merge late values, in the few steps that have any."""
    late = f"(SELECT DISTINCT origin, machine, step FROM ({raw(STEPS)}) WHERE {LATE})"
    return f"""
SELECT lines.* FROM ({lines}) AS lines ANTI JOIN {late} USING (origin, machine, step)
UNION ALL
SELECT lines.* FROM ({lines}) AS lines SEMI JOIN {late} USING (origin, machine, step)
QUALIFY row_number() OVER (PARTITION BY origin, machine, step, name ORDER BY late, attempt DESC, part DESC) = 1"""
