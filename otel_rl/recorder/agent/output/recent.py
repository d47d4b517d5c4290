"""The last steps of a run for `now.json`: their metrics, where their time went, and the last events."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.export import Ended, Event, Params, Row
from otel_rl.recorder.archive.now import Curve, EventNow, Progress
from otel_rl.recorder.facts.event_text import text_of
from otel_rl.recorder.facts.step_time import RECENT_STEPS, StepRow, recent, slower
from otel_rl.recorder.secrets import redacted
from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.semconv.shown_metrics import shown_metrics
from otel_rl.semconv.total_steps import total_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.export import Item
    from otel_rl.recorder.archive.now import PhaseTime
    from otel_rl.semconv.vocabulary import Vocabulary

_POINTS = 60
"""Points of a curve: as many as a terminal of 80 columns can show."""
_EVENTS = 20
_MOST_NAMES = 500

Point = tuple[int, float | None]


class Recent:
    """The last steps of a run, in a bounded memory.

    Args:
        vocabulary: What names of metrics and phases mean.
        before: What an earlier agent of the run wrote last.
        rows: The last rows that it saw.
    """

    def __init__(self, vocabulary: Vocabulary, before: Progress, rows: Iterable[StepRow] = ()) -> None:
        self._vocabulary, self._said = vocabulary, before
        self._curves = {one.name: deque[Point](one.points, _POINTS) for one in before.curves}
        self._rows = deque(rows, RECENT_STEPS + 1)
        self._events = deque[EventNow](before.events, _EVENTS)
        self._chosen: tuple[int, Sequence[str]] = 0, ()
        self._is_new = False

    @property
    def last_rows(self) -> tuple[StepRow, ...]:
        """The last rows, for the next agent."""
        return tuple(self._rows)

    def add(self, items: Iterable[Item]) -> None:
        """Take what the reducer has made."""
        for item in items:
            match item:
                case Row() if not item.late and item.part == 0:
                    self._add_row(item)
                case Row():
                    self._add_late(item)
                case Event():
                    text = redacted(text_of(item.attributes))
                    role = str(item.attributes.get(semconv.ROLE, ""))
                    self._events.append(EventNow(item.time_unix_nano, item.name, text, item.step, item.rank, role))
                    self._is_new = True
                case Params():
                    self._change(total_steps=total_steps(item.values) or self._said.total_steps)
                case Ended():
                    self._change(outcome=item.outcome, error=redacted(item.error))
                case _:
                    pass

    def progress(self, shares: tuple[PhaseTime, ...] = ()) -> Progress:
        """Return how far the run is; `shares` is where the time of the last 20 steps went."""
        if self._is_new:
            self._is_new = False
            if self._chosen[0] != len(self._curves):
                framework = self._vocabulary.chosen or "auto"
                self._chosen = len(self._curves), shown_metrics(self._curves, framework)
            shown = dict.fromkeys((*self._chosen[1], STEP_TIME))
            self._change(
                recent_step_seconds=recent(self.last_rows),
                recent_shares=shares or self._said.recent_shares,
                curves=tuple(Curve(name, _rounded(self._curves[name])) for name in shown if name in self._curves),
                events=tuple(self._events),
            )
            self._is_new = False
        return self._said

    def _add_row(self, row: Row) -> None:
        said = self._said
        # A later attempt goes back to its checkpoint, and repeats steps that curves and counts would have twice
        # (recorder/agent/test_recent.py).
        if row.attempt > said.attempt and said.last_step is not None:
            self._forget_from(row.step)
            steps = said.steps - max(0, said.last_step - row.step + 1)
            said = self._change(steps=max(0, steps), resumed_at=(*said.resumed_at, row.step))
        elif said.last_step is not None and row.step <= said.last_step and row.attempt <= said.attempt:
            return  # made again by an agent that was started again
        first = row.step if said.first_step is None else min(said.first_step, row.step)
        self._change(
            attempt=row.attempt, first_step=first, last_step=row.step, steps=said.steps + 1, outcome=None, error=""
        )
        for name, value in row.values.items():
            curve = self._curves.get(name)
            if curve is None:
                if len(self._curves) >= _MOST_NAMES:
                    continue
                curve = self._curves[name] = deque(maxlen=_POINTS)
            curve.append((row.step, value))
        if not row.partial:
            self._rows.append(StepRow(row.step, row.attempt, row.time_unix_nano, row.values.get(STEP_TIME)))
        self._is_new = True

    def _add_late(self, late: Row) -> None:
        """Add the time of a rank that came late to its step, or leave out the step that it died in."""
        for place, row in enumerate(self._rows):
            if row[:2] == (late.step, late.attempt):
                self._rows[place] = row._replace(seconds=slower(row.seconds, late.values.get(STEP_TIME)))
                if late.partial:
                    del self._rows[place]
                self._is_new = True
                return

    def _forget_from(self, step: int) -> None:
        for curve in self._curves.values():
            while curve and curve[-1][0] >= step:
                curve.pop()
        while self._rows and self._rows[-1].step >= step:
            self._rows.pop()

    def _change(self, **changes: object) -> Progress:
        self._is_new = True
        self._said = replace(self._said, **changes)
        return self._said


def _rounded(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return points with as many digits as a curve needs, so that the file stays small, and without NaN."""
    return tuple(
        (step, float(f"{value:.5g}") if value is not None and math.isfinite(value) else None) for step, value in points
    )
