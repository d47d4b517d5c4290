"""The own times of phases, read from a run: the column of the agent, or computed from spans where it is missing."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.recorded import PHASE, in_sample
from otel_rl.look.insight.step_rows import step_seconds
from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.facts.goodput import within
from otel_rl.recorder.facts.own_time import PhaseInterval, own_times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.look.reader.runs import RunReader

IN_STEPS = "phase IS NOT NULL AND step IS NOT NULL"
"""The condition, in SQL, that a span is a phase inside of steps, or a part of one."""
_NS = 1_000_000_000
_MOST_SPANS = 100_000
"""Spans of a run without the column from which the part of each phase that is its own is computed."""
Interval = tuple[int, int]
"""Two times in Unix nanoseconds."""


class _PhaseOfStep(NamedTuple):
    step: int
    phase: str
    is_whole: bool  # whether it is not a part of a phase
    times: PhaseInterval


def own_ns(run: RunReader, where: str = IN_STEPS) -> str:
    """Return the own time of a span in nanoseconds, in SQL.

    Archives of earlier versions and spans of other programs lack the column. There, it is the duration times the part
    of its phase that is its own: in all steps, or in three ranges of them if there are very many spans.

    Args:
        run: The run.
        where: The condition, in SQL, of the spans.
    """
    counts = run.sql(f"""SELECT count(*) AS n, count(own_ns) AS known, count(DISTINCT step) AS steps,
        min(step) AS first, max(step) AS last FROM spans WHERE {where}""")
    number, known, steps, first, last = (counts[name][0] for name in counts.columns)
    if number == known:
        return "own_ns"
    sampled = where
    if number > _MOST_SPANS:
        sampled += f" AND {in_sample(int(first), int(last), max(3, int(_MOST_SPANS * steps // number)), 3)}"
    own: dict[str, int] = defaultdict(int)
    whole: dict[str, int] = defaultdict(int)
    for phases in _processes(run, sampled):
        for span, nanoseconds in zip(phases, own_times([span.times for span in phases]), strict=True):
            own[span.phase] += nanoseconds
            whole[span.phase] += span.is_whole * (span.times.ended - span.times.began)
    parts = {phase: own[phase] / whole[phase] for phase in own if whole[phase]} or {"": 0.0}
    cases = " ".join(f"WHEN {literal(phase)} THEN {part!r}" for phase, part in parts.items())
    return f"CASE WHEN {PHASE} THEN duration_ns * CASE phase {cases} ELSE 0 END ELSE 0 END"


def time_within(run: RunReader, where: str, interval: Interval) -> dict[tuple[int, str], int]:
    """Return the part of an interval that is in steps, in nanoseconds over all processes of some spans.

    It is by step and phase, without a name outside of any.
    """
    overlaps = f"start_unix_nano < {interval[1]} AND start_unix_nano + duration_ns > {interval[0]}"
    spent: dict[tuple[int, str], int] = defaultdict(int)
    for phases in _processes(run, f"{where} AND {overlaps}"):
        for span, own in zip(phases, own_times([span.times for span in phases], interval), strict=True):
            spent[span.step, span.phase] += own
    steps = {step for (step, _), own in spent.items() if own}
    if not steps:
        return {}
    seconds = dict(step_seconds(run))
    begun = run.sql(f"""SELECT step, min(start_unix_nano) AS began,
        count(DISTINCT (coalesce(role, ''), coalesce(rank, 0))) AS processes
        FROM spans WHERE {where} AND step IN ({", ".join(map(str, steps))}) GROUP BY 1""")
    for step, began, processes in lines_of(begun):
        whole = processes * within([interval], began, began + round(seconds.get(step, 0.0) * _NS))
        outside = whole - sum(own for (of, _), own in spent.items() if of == step)
        if outside > 0:
            spent[step, ""] += outside
    return spent


def _processes(run: RunReader, where: str) -> Iterator[list[_PhaseOfStep]]:
    """Yield the phases of each process."""
    spans = run.sql(f"""SELECT coalesce(role, '') AS role, coalesce(rank, 0) AS rank, step, phase, {PHASE} AS is_whole,
        start_unix_nano, start_unix_nano + duration_ns AS ended, span_id, parent_id FROM spans WHERE {where}
        ORDER BY ALL""")
    for _, of_process in groupby(lines_of(spans), key=lambda line: line[:2]):
        yield [_PhaseOfStep(line[2], line[3], line[4], PhaseInterval(*line[5:])) for line in of_process]
