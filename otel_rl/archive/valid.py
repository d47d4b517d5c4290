"""The valid history of runs, in SQL.

A run that resumes from a checkpoint repeats steps. The last attempt wins: from the first step of an attempt on, the
rows of all earlier attempts are void. If an attempt marks steps, its first step is the first that it began: a value
that it only logs for an earlier step, such as an evaluation, voids nothing. Late rows are merged into the row of their
step: they add names, and never replace a value that left in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.archive.tables import ATTEMPTS, EVENTS, MESSAGES, ROWS, SPANS, STEPS, TEXTS, TRAJECTORIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_rl.archive.tables import Table

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
    found: Void = []
    least: dict[int, int] = {}
    for origin, attempt, first in sorted(firsts, key=lambda one: (one[0], -one[1])):
        if origin in least:
            found.append((origin, attempt, least[origin]))
        if first is not None:
            least[origin] = min(first, least.get(origin, first))
    return found


def valid(table: Table, raw: Callable[[Table], str], void: Void, ids: Sequence[str], *, late: bool) -> str:
    """Return a query for the lines of a table that are part of the valid history.

    Args:
        table: The table.
        raw: A function that returns the query for all lines of a table, with the number of the run in `origin`.
        void: From which step on attempts are void.
        ids: The ids of the runs, as far as they are known.
        late: Whether there are late rows.
    """
    lines = raw(table)
    if table is ATTEMPTS:
        return f"SELECT * FROM ({lines}) {_LAST}"
    if void and table in (ROWS, STEPS, TRAJECTORIES, TEXTS, MESSAGES):
        lines = _without(lines, void)
    elif void and table in (SPANS, EVENTS):
        lines = _untraced(table, raw, void, ids)
    return _merged(lines, raw) if late and table is ROWS else lines


_LAST = """
QUALIFY row_number() OVER (
    PARTITION BY origin, machine, attempt, role, rank, host, pid, started_unix_nano
    ORDER BY ended_unix_nano DESC NULLS LAST, length(devices) DESC NULLS LAST
) = 1"""
"""The last line of each process: more is known of it than in earlier ones."""


_IS_VOID = "void.origin = lines.origin AND void.attempt = lines.attempt AND lines.step >= void.void_from"
_IN_VOID_STEP = """void.origin = lines.origin AND lines.step >= void.void_from
    AND lines.trace_id = left(sha256(concat(void.id, '/', void.attempt, '/', lines.step)), 32)"""
"""The trace id of a step is a hash of run id, attempt and step."""


def _without(lines: str, void: Void) -> str:
    return f"SELECT lines.* FROM ({lines}) AS lines ANTI JOIN {_relation(void)} ON {_IS_VOID}"


def _untraced(table: Table, raw: Callable[[Table], str], void: Void, ids: Sequence[str]) -> str:
    """Leave out the lines in the traces of void steps, and of trajectories of void steps alone."""
    traces = "UNION ALL ".join(
        f"SELECT lines.origin, trace_id, void.origin IS NOT NULL AS is_void FROM ({raw(one)}) AS lines"
        f" LEFT JOIN {_relation(void)} ON {_IS_VOID} WHERE trace_id <> ''\n"
        for one in (STEPS, TRAJECTORIES)
    )
    void_traces = f"(SELECT origin, trace_id FROM ({traces}) GROUP BY ALL HAVING bool_and(is_void))"
    kept = f"SELECT lines.* FROM ({raw(table)}) AS lines ANTI JOIN {void_traces} USING (origin, trace_id)"
    if table is SPANS:  # the roots of steps have their attempt
        kept = _without(kept, void)
    known = [(*one, ids[one[0]]) for one in void if ids[one[0]]]
    if not known:
        return kept
    return f"SELECT lines.* FROM ({kept}) AS lines ANTI JOIN {_relation(known, ', id')} ON {_IN_VOID_STEP}"


def _relation(void: Sequence[tuple[int | str, ...]], more: str = "") -> str:
    lines = ", ".join(f"({', '.join(map(literal, one))})" for one in void)
    return f"(VALUES {lines}) AS void (origin, attempt, void_from{more})"


def literal(value: int | str) -> str:
    """Return a value as SQL."""
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _merged(lines: str, raw: Callable[[Table], str]) -> str:
    """Merge late values, in the few steps that have any."""
    late = f"(SELECT DISTINCT origin, machine, step FROM ({raw(STEPS)}) WHERE {LATE})"
    return f"""
SELECT lines.* FROM ({lines}) AS lines ANTI JOIN {late} USING (origin, machine, step)
UNION ALL
SELECT lines.* FROM ({lines}) AS lines SEMI JOIN {late} USING (origin, machine, step)
QUALIFY row_number() OVER (PARTITION BY origin, machine, step, name ORDER BY late, attempt DESC, part DESC) = 1"""
