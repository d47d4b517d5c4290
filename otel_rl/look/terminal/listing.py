"""The runs below a directory, as `otel-rl ls` lists them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from otel_rl.cli.extras import absent_package
from otel_rl.cli.lines import StyledText, fit_line, line, safe, width
from otel_rl.look.insight.facts import Cost
from otel_rl.look.insight.run_groups import RunGroup
from otel_rl.look.insight.selection import Value
from otel_rl.look.terminal import drawing, words
from otel_rl.recorder.archive.marks import Marks
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.runs import place_of, places_of
from otel_rl.recorder.convert.cells import fit, right
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.states import State
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from otel_rl.cli.lines import Line
    from otel_rl.look.insight import Facts
    from otel_rl.look.insight.run_values import RunValues
    from otel_rl.recorder.archive.now import Curve
    from otel_rl.recorder.archive.present import RunPresent
    from otel_rl.recorder.archive.runs import Place

_NS = 1e9
_METRICS = 3
_CURVE = 7
_SENTENCES = 3
_FACTS_S = 2.0
"""Seconds for reading the facts of the newest runs."""
_LEAST_VERDICT = 20
_WIDE = 110
_NO_VALUES: Mapping[str, Any] = {}


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list, as `otel-rl ls` prints it for programs."""

    path: str  # the run directory
    id: str  # identity of the run
    project: str  # its project
    name: str  # its display name
    marks: Marks  # the tags and notes that people gave it
    state: State  # its state
    reason: str  # why it is in this state; of a live one, what it lacks
    last_unix_nano: int  # its last sign of life; 0 if there is none
    steps: int  # number of steps in the valid history
    total_steps: int | None  # number of steps that its parameters announce
    last_step: int | None  # its last step
    recent_step_seconds: float | None  # median time of the last 20 steps; `None` if it is unknown
    recent_longest_phase: str  # where most time of the last 20 steps went; empty if unknown
    recent_longest_share: float | None  # its share of that time
    verdict: tuple[str, ...] | None  # the first three sentences of its facts; `None` if there was no time for them
    metrics: dict[str, float | None]  # the last values of the main metrics; `None` is one that is not finite
    cost: Cost | None  # its cost, as far as it was recorded; `None` if there was no time for its facts
    columns: dict[str, Value]  # the values that `--columns` and `--sort` ask for; `None` is one that the run lacks


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The runs below directories, the one with the last sign of life first."""

    runs: tuple[Listed, ...]
    groups: tuple[RunGroup, ...] = ()  # their groups, with the cost of each and the best run; none without `--group`


def runs_below(directories: Iterable[Path], at: int | None = None) -> list[RunPresent]:
    """Return the runs at or below directories, the one with the last sign of life first; `at` is the time."""
    at = time.time_ns() if at is None else at
    runs = []
    for directory in directories:
        try:
            places = places_of(directory)
        except FileNotFoundError:
            continue
        runs += [_read(place, at) for place in places]
    return sorted(runs, key=lambda run: (-run.last_unix_nano, run.project, run.name))


def _read(place: Place, at: int) -> RunPresent:
    """Return the present of a run, from what it recorded if no agent left a summary and there is what reads it."""
    present = present_of(place, at)
    if present.is_complete:
        return present
    try:
        from otel_rl.look.terminal.past import present_of_archive  # loads DuckDB, which takes longer than all others
    except ModuleNotFoundError as error:
        if not absent_package(error):
            raise
        unread = "to read its records: pip install 'otel-rl[look]'"
        is_known = present.state != "lost"
        return present if is_known else replace(present, reason=unread, sentence=f"{wording.capitalized(unread)}.")
    return present_of_archive(place, at)


def facts_by_path(runs: Iterable[RunValues], most_seconds: float = _FACTS_S) -> dict[str, Facts]:
    """Return the facts of runs by their paths, of as many as there is time for.

    There are none if the packages that read archives are not installed.
    """
    read: dict[str, Facts] = {}
    try:
        import otel_rl.look.insight.conclude  # noqa: F401 # loads DuckDB
    except ModuleNotFoundError as error:
        if not absent_package(error):
            raise
        return read
    until = time.monotonic() + most_seconds
    for values in runs:
        if time.monotonic() >= until:
            break
        with contextlib.suppress(OSError):  # somebody may delete a run that is listed
            read[values.run.path] = values.facts
    return read


def agreeing(runs: Iterable[RunPresent], facts: Mapping[str, Facts], at: int) -> list[RunPresent]:
    """Return the runs, with the present of each that ended or hung before its facts were read."""
    return [
        run if run.path not in facts or facts[run.path].summary.state == run.state else _read(place_of(run.path), at)
        for run in runs
    ]


def first_sentences(runs: Iterable[RunPresent], facts: Mapping[str, Facts]) -> dict[str, str]:
    """Return what is to be read first of each run by its path: the first of its findings, else how it stands."""
    return {run.path: next(iter(_sentences(facts.get(run.path)) or ()), run.sentence) for run in runs}


def _sentences(facts: Facts | None) -> tuple[str, ...] | None:
    return None if facts is None else tuple(finding.sentence for finding in facts.findings[:_SENTENCES])


def listed(run: RunPresent, facts: Facts | None = None, columns: Mapping[str, Value] = _NO_VALUES) -> Listed:
    """Return a run as the list has it, with the first sentences of its facts, and further columns."""
    progress = run.progress
    total = sum(share.seconds for share in progress.recent_shares)
    longest = next((share for share in progress.recent_shares if share.name), None)
    return Listed(
        path=run.path,
        id=run.id,
        project=run.project,
        name=run.name,
        marks=run.marks,
        state=run.state,
        reason=run.reason,
        last_unix_nano=run.last_unix_nano,
        steps=progress.steps,
        total_steps=progress.total_steps,
        last_step=progress.last_step,
        recent_step_seconds=progress.recent_step_seconds,
        recent_longest_phase=longest.name if longest else "",
        recent_longest_share=longest.seconds / total if longest and total > 0 else None,
        verdict=_sentences(facts),
        metrics={curve.name: curve.points[-1][1] for curve in progress.curves if curve.points},
        cost=None if facts is None else facts.cost,
        columns=dict(columns),
    )


def table(
    runs: Sequence[RunPresent],
    cells: int,
    at: int,
    facts: Mapping[str, Facts] | None = None,
    values: Mapping[str, Mapping[str, Value]] = _NO_VALUES,
) -> list[Line]:
    """Draw the list; where there is not enough room, columns at the right are left out.

    Args:
        runs: The runs.
        cells: The width.
        at: The time, in Unix nanoseconds.
        facts: Facts of runs by their paths, the first of which take the room of phases and metrics.
        values: Further columns of runs by their paths, all with the same names.
    """
    known = facts or {}
    columns = [
        _column(
            "RUN", [StyledText(f"{safe(run.project)}/{safe(run.name)}", "bold") for run in runs], max(18, cells // 3)
        ),
        _column("STATE", [_state(run, known.get(run.path)) for run in runs]),
        _column("STEPS", [StyledText(steps_of(run)) for run in runs], is_number=True),
        _column("TAGS", [StyledText(safe(", ".join(run.marks.labels))) for run in runs], max(8, cells // 5)),
        _column("SEEN", [StyledText(words.last_seen(run.last_unix_nano, at), "dim") for run in runs], is_number=True),
    ]
    for name in next(iter(values.values()), ()):
        cells_of = [StyledText(_cell(name, values[run.path][name])) for run in runs]
        is_number = not any(isinstance(of_run[name], str) for of_run in values.values())
        columns.append(_column(safe(name), cells_of, is_number=is_number))
    if facts is None or cells >= _WIDE:
        columns.append(_column("STEP TIME", [_step_time(run) for run in runs]))
    if facts is None:
        columns.append(_column("TIME GOES TO", [_goes_to(run) for run in runs]))
        columns += [_metric(runs, number) for number in range(_METRICS)]
    else:
        room = cells - sum(width(column[0]) + 2 for column in columns)
        texts = [StyledText(safe(sentence)) for sentence in first_sentences(runs, known).values()]
        columns.append(_column("VERDICT", texts, max(_LEAST_VERDICT, room)))
    rows: list[list[StyledText]] = [[] for _ in range(len(runs) + 1)]
    left = cells
    for column in columns:
        size = width(column[0]) + 2
        if size > left + 2 or not any(span.text.strip() for cell in column[1:] for span in cell):
            continue
        left -= size
        for row, cell in zip(rows, column, strict=True):
            row += [*cell, StyledText("  ")]
    return [fit_line(row, cells) for row in rows]


def grouped(lines: Sequence[Line], groups: Iterable[RunGroup], cells: int) -> list[Line]:
    """Return the lines of a table of runs in the order of their groups, each group below its title."""
    head, *rows = lines
    shown, place = [head], 0
    for group in groups:
        count = wording.count(len(group.runs), "run")
        title = line((safe(group.label) or "no value", "bold"), "  ", " · ".join(filter(None, (count, group.spent))))
        texts = [line((f"  {safe(sentence)}", "dim")) for sentence in group.sentences]
        shown += [fit_line(text, cells) for text in ((), title, *texts)]
        shown += rows[place : place + len(group.runs)]
        place += len(group.runs)
    return shown


def _cell(name: str, value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return safe(str(value))
    if name == "wasted":
        return wording.percent(value)
    return wording.seconds(value) if name in ("step_time", "seen") else words.number(value)


def _column(head: str, texts: Sequence[StyledText], most: int = 30, *, is_number: bool = False) -> list[Line]:
    """Return the cells of a column, all of the same size."""
    size = min(most, max([len(head), *(width((text,)) for text in texts)]))
    put = right if is_number else fit
    return [line((put(head, size), "dim")), *((text._replace(text=put(text.text, size)),) for text in texts)]


def _metric(runs: Sequence[RunPresent], number: int) -> list[Line]:
    """Return the column of one of the main metrics: name, curve and last value."""
    curves = [next(iter(_metrics(run)[number : number + 1]), None) for run in runs]
    names = [words.tail(curve.name, 16) if curve else "" for curve in curves]
    of_name = min(16, max([0, *map(len, names)]))
    rows: list[Line] = [(StyledText(" " * (of_name + 17)),)]
    for name, curve in zip(names, curves, strict=True):
        last = words.number(curve.points[-1][1]) if curve and curve.points else ""
        shape = fit(drawing.sparkline(curve.points if curve else (), _CURVE), _CURVE)
        rows.append(
            (StyledText(fit(name, of_name) + " ", "dim"), StyledText(shape), StyledText(right(last, 16 - _CURVE)))
        )
    return rows


def steps_of(run: RunPresent) -> str:
    """Return how many steps a run has, of how many."""
    progress = run.progress
    if not run.is_complete:
        return "unknown"
    total = f" of {progress.total_steps:,}" if progress.total_steps else ""
    return f"{progress.steps:,}{total}" if progress.steps else "no step yet"


def _state(run: RunPresent, facts: Facts | None) -> StyledText:
    """Return the state, whether a process is lacking, and whether the last value of a main metric is not finite."""
    severity = "note" if facts is None else facts.severity
    shown = words.state(run.state, lacks=run.lacks not in ("", "report"), severity=severity)
    is_finite = all(curve.points[-1][1] is not None for curve in run.progress.curves if curve.points)
    return shown if is_finite else StyledText(f"{shown.text}, nan", "bad")


def _step_time(run: RunPresent) -> StyledText:
    seconds = run.progress.recent_step_seconds
    return StyledText("" if seconds is None else wording.seconds(seconds))


def _goes_to(run: RunPresent) -> StyledText:
    shares = run.progress.recent_shares
    total = sum(share.seconds for share in shares)
    if total <= 0:
        return StyledText("")
    longest = max(shares, key=lambda share: share.seconds)
    return StyledText(f"{words.phase(longest.name)} {wording.percent(longest.seconds / total)}", longest.category)


def _metrics(run: RunPresent) -> list[Curve]:
    return [curve for curve in run.progress.curves if curve.points and curve.name != STEP_TIME]
