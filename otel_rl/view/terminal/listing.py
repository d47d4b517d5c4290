"""The runs below a directory, as `otel-rl ls` lists them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.archive.runs import places_of
from otel_rl.insight import wording
from otel_rl.insight.facts import State
from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.view.terminal import drawing, words
from otel_rl.view.terminal.lines import Span, fit, fit_line, line, right, safe, width
from otel_rl.view.terminal.present import present_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_rl.archive.now import Curve
    from otel_rl.view.terminal.lines import Line
    from otel_rl.view.terminal.present import Present

_NS = 1e9
_METRICS = 3
_CURVE = 7
_WIDE = 120


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list, as `otel-rl ls` prints it for programs.

    Attributes:
        path: The run directory.
        id: Identity of the run.
        project: Its project.
        name: Its display name.
        state: Its state.
        reason: Why it ended, or what speaks for the state.
        last_unix_nano: Its last sign of life; 0 if there is none.
        steps: Number of steps in the valid history.
        total_steps: Number of steps that its parameters announce.
        last_step: Its last step.
        step_seconds: The usual time of the last steps.
        step_seconds_before: The usual time of the steps before, if it has changed.
        longest_phase: Where most time of the last steps went; empty if unknown.
        longest_share: Its share of that time.
        metrics: The last values of the main metrics; `None` is one that is not finite.
    """

    path: str
    id: str
    project: str
    name: str
    state: State
    reason: str
    last_unix_nano: int
    steps: int
    total_steps: int | None
    last_step: int | None
    step_seconds: float | None
    step_seconds_before: float | None
    longest_phase: str
    longest_share: float | None
    metrics: dict[str, float | None]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The runs below directories, the one with the last sign of life first."""

    runs: tuple[Listed, ...]


def runs_below(directories: Iterable[Path]) -> list[Present]:
    """Return the runs at or below directories, the one with the last sign of life first."""
    at = time.time_ns()
    found = []
    for directory in directories:
        try:
            places = places_of(directory)
        except FileNotFoundError:
            continue
        found += [present_of(place, at) for place in places]
    found = [one if one.is_complete else _read(one) for one in found]
    return sorted(found, key=lambda one: (-one.last_unix_nano, one.project, one.name))


def _read(present: Present) -> Present:
    from otel_rl.view.terminal.past import present_of_archive  # loads DuckDB, which takes longer than all others

    return present_of_archive(present)


def listed(run: Present) -> Listed:
    """Return a run as the list has it."""
    progress = run.progress
    total = sum(one.seconds for one in progress.shares)
    longest = next((one for one in progress.shares if one.name), None)
    return Listed(
        path=run.path,
        id=run.id,
        project=run.project,
        name=run.name,
        state=run.state,
        reason=run.reason,
        last_unix_nano=run.last_unix_nano,
        steps=progress.steps,
        total_steps=progress.total_steps,
        last_step=progress.last_step,
        step_seconds=progress.step_seconds,
        step_seconds_before=progress.step_seconds_before,
        longest_phase=longest.name if longest else "",
        longest_share=longest.seconds / total if longest and total > 0 else None,
        metrics={one.name: one.points[-1][1] for one in progress.curves if one.points},
    )


def table(runs: Sequence[Present], cells: int, at: int) -> list[Line]:
    """Draw the list; where there is not enough room, columns at the right are left out."""
    columns = [
        _column("RUN", [Span(f"{safe(run.project)}/{safe(run.name)}", "bold") for run in runs], max(18, cells // 3)),
        _column("STATE", [_state(run) for run in runs]),
        _column("STEPS", [Span(steps_of(run)) for run in runs], is_number=True),
        _column("SEEN", [Span(words.seen(run.last_unix_nano, at), "dim") for run in runs], is_number=True),
        _column("STEP TIME", [_step_time(run, is_short=cells < _WIDE) for run in runs]),
        _column("TIME GOES TO", [_goes_to(run) for run in runs]),
    ]
    columns += [_metric(runs, number) for number in range(_METRICS)]
    rows: list[list[Span]] = [[] for _ in range(len(runs) + 1)]
    left = cells
    for column in columns:
        size = width(column[0]) + 2
        if size > left + 2 or not any(span.text.strip() for one in column[1:] for span in one):
            continue
        left -= size
        for row, one in zip(rows, column, strict=True):
            row += [*one, Span("  ")]
    return [fit_line(row, cells) for row in rows]


def _column(head: str, texts: Sequence[Span], most: int = 30, *, is_number: bool = False) -> list[Line]:
    """Return the cells of a column, all of the same size."""
    size = min(most, max([len(head), *(width((one,)) for one in texts)]))
    put = right if is_number else fit
    return [line((put(head, size), "dim")), *((one._replace(text=put(one.text, size)),) for one in texts)]


def _metric(runs: Sequence[Present], number: int) -> list[Line]:
    """Return the column of one of the main metrics: name, curve and last value."""
    found = [next(iter(_metrics(run)[number : number + 1]), None) for run in runs]
    names = [words.tail(one.name, 16) if one else "" for one in found]
    of_name = min(16, max([0, *map(len, names)]))
    rows: list[Line] = [(Span(" " * (of_name + 17)),)]
    for name, one in zip(names, found, strict=True):
        points = [value for _, value in one.points] if one else []
        last = words.number(points[-1]) if points else ""
        curve = fit(drawing.sparkline(points, _CURVE), _CURVE)
        rows.append((Span(fit(name, of_name) + " ", "dim"), Span(curve), Span(right(last, 16 - _CURVE))))
    return rows


def steps_of(run: Present) -> str:
    """Return how many steps a run has, of how many."""
    progress = run.progress
    total = f" of {progress.total_steps:,}" if progress.total_steps else ""
    return f"{progress.steps:,}{total}" if progress.steps else "no step yet"


def _state(run: Present) -> Span:
    """Return the state, whether a process is lacking, and whether the last value of a main metric is not finite."""
    found = words.state(run.state, lacks=bool(run.processes and run.reason))
    is_finite = all(one.points[-1][1] is not None for one in run.progress.curves if one.points)
    return found if is_finite else Span(f"{found.text}, nan", "bad")


def _step_time(run: Present, *, is_short: bool) -> Span:
    now, before = run.progress.step_seconds, run.progress.step_seconds_before
    if now is None:
        return Span("")
    text = words.time_of(now)
    if before is None:
        return Span(text)
    sign, style = ("↑", "warning") if now > before else ("↓", "good")
    return Span(f"{text} {sign}" if is_short else f"{text} ({words.time_of(before)} before)", style)


def _goes_to(run: Present) -> Span:
    shares = run.progress.shares
    total = sum(one.seconds for one in shares)
    if total <= 0:
        return Span("")
    longest = max(shares, key=lambda one: one.seconds)
    return Span(f"{words.phase(longest.name)} {wording.percent(longest.seconds / total)}", longest.category)


def _metrics(run: Present) -> list[Curve]:
    return [one for one in run.progress.curves if one.points and one.name != STEP_TIME]
