"""The last steps of a run for `now.json`: their metrics, where their time went, and the last events."""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.agent.analysis.goodput import ROLLOUTS, TRAINER
from otel_rl.archive.now import Curve, EventNow, PhaseTime, Progress
from otel_rl.errors.redaction import redacted
from otel_rl.export import Ended, Event, Params, Row
from otel_rl.semconv.main_metrics import STEP_TIME
from otel_rl.semconv.phase_categories import category_of
from otel_rl.semconv.shown_metrics import shown_metrics
from otel_rl.semconv.total_steps import total_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.agent.analysis.goodput import Goodput, Name
    from otel_rl.export import Item
    from otel_rl.semconv.vocabulary import Vocabulary

_POINTS = 60
"""Points of a curve: as many as a terminal of 80 columns can show."""
_USUAL, _BEFORE = 20, 60
"""Steps that the usual time is the median of, and steps before these that it is compared with."""
_CHANGED = 1.15
"""The ratio from which the usual time has changed; a smaller one is noise more often than not."""
_SHARED = 20
"""Steps over which the time is shared out."""
_EVENTS = 20
_MOST_NAMES = 500
_LONGEST = 200

Point = tuple[int, float | None]


class Recent:
    """The last steps of a run, in a bounded memory.

    Args:
        goodput: Where the time of all processes went so far.
        vocabulary: What names of metrics and phases mean.
        before: What an earlier agent of the run wrote last.
    """

    def __init__(self, goodput: Goodput, vocabulary: Vocabulary, before: Progress) -> None:
        self._goodput, self._vocabulary, self._said = goodput, vocabulary, before
        self._curves = {one.name: deque[Point](one.points, _POINTS) for one in before.curves}
        self._times = deque[tuple[int, float]](maxlen=_USUAL + _BEFORE)
        for step, value in self._curves.get(STEP_TIME, ()):
            if value is not None:
                self._times.append((step, value))
        self._spent: deque[dict[Name, int]] = deque(maxlen=_SHARED + 1)
        self._last: dict[str, tuple[Mapping[Name, int], tuple[PhaseTime, ...]]] = {}
        self._events = deque[EventNow](before.events, _EVENTS)
        self._chosen: tuple[int, Sequence[str]] = 0, ()
        self._is_new = False

    def add(self, items: Iterable[Item]) -> None:
        """Take what the reducer has made."""
        for item in items:
            match item:
                case Row() if not item.late and item.part == 0:
                    self._add_row(item)
                case Event():
                    attributes = " ".join(f"{key}={value}" for key, value in item.attributes.items())
                    text = redacted(attributes)[:_LONGEST]
                    role = str(item.attributes.get(semconv.ROLE, ""))
                    self._events.append(EventNow(item.time_unix_nano, item.name, text, item.step, item.rank, role))
                    self._is_new = True
                case Params():
                    self._change(total_steps=total_steps(item.values) or self._said.total_steps)
                case Ended():
                    self._change(outcome=item.outcome, error=redacted(item.error))
                case _:
                    pass

    def progress(self) -> Progress:
        """Return how far the run is."""
        if self._is_new:
            self._is_new = False
            if self._chosen[0] != len(self._curves):
                framework = self._vocabulary.chosen or "auto"
                self._chosen = len(self._curves), shown_metrics(self._curves, framework)
            shown = dict.fromkeys((*self._chosen[1], STEP_TIME))
            usual, before = self._step_seconds()
            self._change(
                step_seconds=usual,
                step_seconds_before=before,
                shares=(self._shares() if self._spent else ()) or self._said.shares,
                curves=tuple(Curve(name, _rounded(self._curves[name])) for name in shown if name in self._curves),
                events=tuple(self._events),
            )
            self._is_new = False
        return self._said

    def last_step(self, journal: str) -> tuple[PhaseTime, ...]:
        """Return where the time of the last step of a process went."""
        spent = self._goodput.last_step(journal)
        known = self._last.get(journal)
        if known is None or known[0] is not spent:  # a step makes another object
            known = self._last[journal] = spent, self._phases(spent)
        return known[1]

    def _add_row(self, row: Row) -> None:
        said = self._said
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
        if (seconds := row.values.get(STEP_TIME)) is not None:
            self._times.append((row.step, seconds))
        self._spent.append(dict(self._goodput.of_fleet(TRAINER)))
        self._is_new = True

    def _forget_from(self, step: int) -> None:
        for curve in self._curves.values():
            while curve and curve[-1][0] >= step:
                curve.pop()
        while self._times and self._times[-1][0] >= step:
            self._times.pop()

    def _step_seconds(self) -> tuple[float | None, float | None]:
        """Return the usual time of the last steps, and of those before if it has changed."""
        seconds = [one for _, one in self._times]
        last, earlier = seconds[-_USUAL:], seconds[:-_USUAL]
        usual = median(last) if last else None
        before = median(earlier) if len(earlier) >= _USUAL // 2 else None
        if usual is None or before is None or max(usual, before) < _CHANGED * min(usual, before):
            before = None
        return usual, before

    def _shares(self) -> tuple[PhaseTime, ...]:
        """Return where the time of the last steps went; of the last step of each process, if these came at once."""
        begin, end = self._spent[0], self._spent[-1]
        spent = {name: count - begin.get(name, 0) for name, count in end.items() if count > begin.get(name, 0)}
        return self._phases(spent or self._goodput.last_steps())

    def _phases(self, nanoseconds: Mapping[Name, int]) -> tuple[PhaseTime, ...]:
        by_phase: dict[str, int] = {}
        for (phase, _part), count in nanoseconds.items():
            by_phase[phase] = by_phase.get(phase, 0) + count
        found = sorted(((count, phase) for phase, count in by_phase.items() if count > 0), reverse=True)
        return tuple(PhaseTime(phase, self._category(phase), round(count / 1e9, 6)) for count, phase in found)

    def _category(self, phase: str) -> str:
        if not phase:
            return "none"
        return "rollout" if phase in ROLLOUTS else category_of(self._vocabulary.phase(phase))

    def _change(self, **changes: object) -> Progress:
        self._is_new = True
        self._said = replace(self._said, **changes)
        return self._said


def _rounded(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return points with as many digits as a curve needs, so that the file stays small, and without NaN."""
    return tuple(
        (step, float(f"{value:.5g}") if value is not None and math.isfinite(value) else None) for step, value in points
    )
