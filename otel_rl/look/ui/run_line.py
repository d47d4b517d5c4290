"""A run in the list of the page: what `otel-rl ls` has of it, and what is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.look.terminal.listing import listed
from otel_rl.look.terminal.scene import as_of
from otel_rl.look.ui.verdicts import MainCurve, RunVerdict
from otel_rl.recorder.facts.order import Severity
from otel_rl.recorder.facts.states import State, Sure, goes_on
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.look.insight import Facts
    from otel_rl.recorder.archive.present import RunPresent

Trend = Literal[-1, 0, 1]
_UNREAD = "Its records are being read."


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list of the page."""

    key: str  # its key in all addresses of the page
    directory: str  # where it is, from the directory that is watched
    id: str  # identity of the run
    project: str  # its project
    name: str  # its display name
    tags: tuple[str, ...]  # its tags, and `baseline` and `archived` where it is that
    notes: str  # what people wrote about it
    state: State | Literal["unread"]  # its state; "unread" while only its archive knows it, and was not read yet
    goes_on: bool  # whether more is to come
    reason: str  # why it is in this state; of a live one, what it lacks
    needs_somebody: bool  # whether somebody has to do something now
    severity: Severity  # how much what is to be read first matters
    sentence: str  # what is to be read first
    advice: str  # what to do about it; can be empty
    sure: Sure  # how sure it is
    last_unix_nano: int  # its last sign of life; 0 if there is none
    started_unix_nano: int | None  # when its first process started; `None` if unknown
    steps: int  # number of steps in the valid history
    total_steps: int | None  # number of steps that its parameters announce
    last_step: int | None  # its last step
    recent_step_seconds: float | None  # median time of the last 20 steps; `None` if it is unknown
    step_trend: Trend  # 1 if steps have become slower for good, -1 if faster
    recent_shares: tuple[tuple[str, str, float], ...]
    """Where the time of the last 20 steps went: phase, category and share; time outside of phases has no name."""
    curve: MainCurve | None  # its first main metric; `None` if it has none
    metrics: dict[str, float | None]  # the last values of the main metrics; `None` is one that is not finite
    parameters: dict[str, str | float | int | bool | None]  # its parameters, those that are one value
    spent: str  # its cost in words; empty if nothing of it is known
    has_verdict: bool  # if false, its archive has not been read yet, and the sentence is that of its state


def run_line(key: str, top: Path, run: RunPresent, verdict: RunVerdict | None) -> RunLine:
    """Return a run as the list has it, with what its archive says if that was read already."""
    facts = None if verdict is None or verdict.facts.summary.state != run.state else as_of(verdict.facts, run)
    first = facts.findings[0] if facts and facts.findings else None
    known = listed(run, facts)
    is_unread = verdict is None and not run.is_complete
    is_bad = not is_unread and run.state in ("hung", "failed", "crashed", "lost")
    return RunLine(
        key=key,
        directory=_shown(run.path, top),
        id=known.id,
        project=known.project,
        name=known.name,
        tags=run.marks.labels,
        notes=run.marks.notes,
        state="unread" if is_unread else known.state,
        goes_on=goes_on(known.state),
        reason=known.reason,
        needs_somebody=is_bad or bool(first and first.severity == "bad"),
        severity=first.severity if first else "bad" if is_bad else "note",
        sentence=first.sentence if first else _UNREAD if is_unread else run.sentence,
        advice=first.advice if first else "",
        sure=first.sure if first else "certain",
        last_unix_nano=known.last_unix_nano,
        started_unix_nano=run.started_unix_nano,
        steps=known.steps,
        total_steps=known.total_steps,
        last_step=known.last_step,
        recent_step_seconds=known.recent_step_seconds,
        step_trend=_trend(facts),
        recent_shares=_shares(run),
        curve=_curve(run, verdict),
        metrics=known.metrics,
        parameters=verdict.parameters if verdict else {},
        spent="" if verdict is None else verdict.facts.cost.words,
        has_verdict=facts is not None,
    )


def _shown(path: str, top: Path) -> str:
    return path.removeprefix(f"{top}/") if path != str(top) else top.name


def _curve(run: RunPresent, verdict: RunVerdict | None) -> MainCurve | None:
    last = next((curve for curve in run.progress.curves if curve.name != STEP_TIME and curve.points), None)
    if last is None:
        return None
    whole = verdict.curve if verdict is not None and verdict.curve and verdict.curve.name == last.name else None
    older = () if whole is None else whole.points
    return MainCurve(last.name, (*older, last.points[-1]) if older else last.points)


def _trend(facts: Facts | None) -> Trend:
    """Return whether steps have become slower, as the facts say."""
    if facts is None or facts.summary.step_seconds_before is None or facts.summary.recent_step_seconds is None:
        return 0
    return 1 if facts.summary.recent_step_seconds > facts.summary.step_seconds_before else -1


def _shares(run: RunPresent) -> tuple[tuple[str, str, float], ...]:
    shares = run.progress.recent_shares
    total = sum(share.seconds for share in shares)
    return tuple((share.name, share.category, share.seconds / total) for share in shares) if total > 0 else ()
