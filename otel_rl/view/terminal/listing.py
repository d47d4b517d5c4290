"""The runs below a directory, as `otel-rl ls` lists them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.archive.runs import places_of
from otel_rl.insight.facts import State
from otel_rl.view.terminal import drawing, words
from otel_rl.view.terminal.lines import Span, fit, fit_line, line, right, safe
from otel_rl.view.terminal.present import present_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_rl.archive.now import Curve
    from otel_rl.view.terminal.lines import Line
    from otel_rl.view.terminal.present import Present

_NS = 1e9
_METRICS = 3


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list, as `otel-rl ls --json` prints it.

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
    """Draw the list; where there is not enough room, metrics are left out first."""
    titles = [f"{safe(run.project)}/{safe(run.name)}" for run in runs]
    of_name = min(max([len(title) for title in titles] + [3]), max(18, cells // 3))
    left = cells - of_name - 2 - 10 - 2 - 13 - 2 - 9 - 2 - 18
    wanted = [_metrics(run) for run in runs]
    count = max(0, min(_METRICS, max((len(found) for found in wanted), default=0), left // 22))
    is_narrow = left < 14
    head = f"{'RUN':{of_name}}  {'STATE':10}  {'STEPS':>13}  {'SEEN':>9}  {'STEP TIME':18}"
    head += "" if is_narrow else f"{'TIME GOES TO':14}"
    rows = [fit_line(line((head, "dim")), cells)]
    for title, run, curves in zip(titles, runs, wanted, strict=True):
        row = [
            Span(fit(title, of_name), "bold"),
            Span("  "),
            words.state(run.state)._replace(text=fit(words.state(run.state).text, 10)),
            Span("  " + right(steps_of(run), 13)),
            Span("  " + right(words.age(run.last_unix_nano, at) if run.last_unix_nano else "never", 9), "dim"),
            *_step_time(run),
        ]
        if not is_narrow:
            row += _goes_to(run)
        for curve in curves[:count]:
            points = [value for _, value in curve.points]
            last = words.number(points[-1])
            name = fit(safe(curve.name).rpartition("/")[2], 8).rstrip()
            row += [Span("  "), Span(f"{name} ", "dim"), Span(drawing.sparkline(points, 6)), Span(f" {last}")]
        rows.append(fit_line(row, cells))
    return rows


def steps_of(run: Present) -> str:
    """Return how many steps a run has, of how many."""
    progress = run.progress
    total = f" of {progress.total_steps:,}" if progress.total_steps else ""
    return f"{progress.steps:,}{total}" if progress.steps else "no step yet"


def _step_time(run: Present) -> tuple[Span, ...]:
    now, before = run.progress.step_seconds, run.progress.step_seconds_before
    if now is None:
        return (Span(" " * 20),)
    text = "  " + words.time_of(now)
    if before is None:
        return (Span(fit(text, 20)),)
    sign, style = ("↑", "warning") if now > before else ("↓", "good")
    return (Span(fit(f"{text} {sign} {words.time_of(before)}", 20), style),)


def _goes_to(run: Present) -> tuple[Span, ...]:
    found = listed(run)
    if found.longest_share is None:
        return (Span(" " * 14),)
    style = next(one.category for one in run.progress.shares if one.name)
    name = fit(safe(found.longest_phase), 9).rstrip()
    return (Span(fit(f"{name} {100 * found.longest_share:.0f} %", 14), style),)


def _metrics(run: Present) -> list[Curve]:
    return [one for one in run.progress.curves if one.points and one.name != "time/step"]
