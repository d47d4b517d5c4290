"""The verdicts of runs: concluded in the background, one run after the other, and kept on disk for those that ended."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.look.insight import Facts
from otel_rl.look.insight.conclude import facts_of_recorded
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.series import blocks
from otel_rl.look.reader.runs import open_run
from otel_rl.look.terminal.past import present_of_archive
from otel_rl.look.ui import changes
from otel_rl.look.ui.budget import EVERY_S
from otel_rl.look.ui.changes import Fingerprint
from otel_rl.look.ui.kept_files import VERDICT, keep, kept_bytes
from otel_rl.recorder.archive.present import RunPresent, present_of
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.facts.states import State, goes_on
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from pathlib import Path

    from otel_rl.look.ui.budget import ReadingBudget
    from otel_rl.recorder.archive.runs import Place

_END_WITHIN_S = 2.0
_NICE = 5
"""The priority of the thread: a thousand runs take minutes, and a trainer may be on the same machine."""
_CURVE_POINTS = 60
_MOST_PARAMETERS, _MOST_CHARACTERS = 500, 200
_warnings = Occasional(log_of("otel_rl"))


class MainCurve(msgspec.Struct, frozen=True):
    """The first main metric over the whole run, or its last points until that was read: steps, and means of steps.

    `None` is a mean of which a value is not finite. The last value is that of the last step.
    """

    name: str
    points: tuple[tuple[int, float | None], ...]


class RunVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its archive has it."""

    facts: Facts  # its facts
    state: State  # the state that its agents said when it was read
    present: RunPresent | None = None  # its present, if no agent left a summary of it
    curve: MainCurve | None = None  # its first main metric over all steps
    parameters: dict[str, str | float | int | bool | None] = {}  # its parameters, those that are one value
    fingerprint: Fingerprint = ()  # of what it was read from
    made_by: str = ""  # the version of otel-rl that concluded


class _Wanted(NamedTuple):
    """A run to be read."""

    place: Place
    is_live: bool
    is_news: bool  # whether its state is another one than that of its facts
    changed_ns: int  # when it changed last


class VerdictReader:
    """Reads runs on a thread of its own, those that go on first.

    Args:
        done: Called on the thread with the key of a run and its verdict.
        budget: The CPU seconds for runs that go on.
        cache: The directory in which verdicts of ended runs are kept; `None` to keep none.
    """

    def __init__(
        self, done: Callable[[str, RunVerdict], None], budget: ReadingBudget, cache: Path | None = None
    ) -> None:
        self._done, self._budget, self._cache = done, budget, cache
        self._wanted: dict[str, _Wanted] = {}
        self._due: dict[str, float] = {}
        self._rested = 0.0  # when the next run that goes on may be read
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._read_all, name="otel-rl-verdicts", daemon=True)
        self._thread.start()

    def want(self, key: str, run: RunPresent, place: Place, changed_ns: int, known: RunVerdict | None = None) -> None:
        """Ask for the verdict of a run that has changed since the known one."""
        is_news = known is None or known.state != run.state
        with self._changed:
            self._wanted[key] = _Wanted(place, goes_on(run.state), is_news, changed_ns)
            self._changed.notify()

    def take(self, key: str, verdict: RunVerdict) -> None:
        """Take the verdict of a run that somebody else has read."""
        with self._changed:
            self._due[key] = time.monotonic() + EVERY_S
            if (wanted := self._wanted.get(key)) is not None and wanted.is_live:
                del self._wanted[key]
        self._done(key, verdict)

    def forget(self, keys: Container[str]) -> None:
        """Forget the runs that are there no more."""
        with self._changed:
            for known in (self._wanted, self._due):
                for key in [key for key in known if key in keys]:
                    del known[key]

    def close(self) -> None:
        """End the thread after the run that it reads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(_END_WITHIN_S)

    def _read_all(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # of this thread alone, on Linux
        while (task := self._next()) is not None:
            key, wanted = task
            began = time.process_time()  # the reader has threads of its own
            try:
                self._done(key, self._verdict_of(key, wanted))
            except Exception as error:  # one run that cannot be read hides no other
                _warnings.warn(f"{wanted.place.path}: {error}")
            self._due[key] = time.monotonic() + EVERY_S
            if wanted.is_live:
                self._rested = self._budget.spend(time.process_time() - began)

    def _next(self) -> tuple[str, _Wanted] | None:
        """Wait for a run that is to be read, and return it; `None` at the end."""
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                due = {key: self._due_at(key, wanted) for key, wanted in self._wanted.items()}
                if ready := [key for key, at in due.items() if at <= now]:
                    key = min(ready, key=self._order)
                    return key, self._wanted.pop(key)
                self._changed.wait(min(due.values()) - now if due else None)
        return None

    def _due_at(self, key: str, wanted: _Wanted) -> float:
        if not wanted.is_live:
            return 0.0
        return max(self._due.get(key, 0.0), 0.0 if wanted.is_news else self._rested)

    def _order(self, key: str) -> tuple[bool, float, int]:
        """Return what sorts runs, those that changed last first: somebody looks for them."""
        wanted = self._wanted[key]
        return not wanted.is_live, self._due.get(key, 0.0), -wanted.changed_ns

    def _verdict_of(self, key: str, wanted: _Wanted) -> RunVerdict:
        fingerprint = changes.of_facts(wanted.place.path, is_over=not wanted.is_live)
        if not wanted.is_live and (kept := self._kept(key, fingerprint)) is not None:
            return kept
        recorded = RecordedRun(open_run(wanted.place.path))
        verdict = verdict_of(recorded, facts_of_recorded(recorded), fingerprint)
        if not wanted.is_live:
            keep(self._cache, key, VERDICT, msgspec.json.encode(verdict))
        return verdict

    def _kept(self, key: str, fingerprint: Fingerprint) -> RunVerdict | None:
        content = kept_bytes(self._cache, key, VERDICT)
        try:
            kept = msgspec.json.decode(content, type=RunVerdict) if content else None
        except msgspec.DecodeError:  # of another version, or cut
            return None
        is_valid = kept is not None and kept.fingerprint == fingerprint and kept.made_by == version("otel-rl")
        return kept if is_valid else None


def verdict_of(recorded: RecordedRun, facts: Facts, fingerprint: Fingerprint) -> RunVerdict:
    """Return what an archive says.

    Args:
        recorded: The run, at the time of its facts.
        facts: Its facts.
        fingerprint: When what they are made of had changed.
    """
    run, at = recorded.run, recorded.at_unix_nano
    present = present_of(run.place, at)
    return RunVerdict(
        facts=facts,
        state=present.state,
        present=None if present.is_complete else present_of_archive(run.place, at),
        curve=_curve_of(recorded, facts.metrics),
        parameters=_single(run.parameters),
        fingerprint=fingerprint,
        made_by=version("otel-rl"),
    )


def _curve_of(recorded: RecordedRun, names: Sequence[str]) -> MainCurve | None:
    name = next((name for name in names if name != STEP_TIME), "")
    series = recorded.series(name)
    if not series:
        return None
    means, wide = blocks(series.values, _CURVE_POINTS)
    points = zip(series.steps[wide - 1 :: wide].tolist(), means.tolist(), strict=True)
    return MainCurve(name, tuple((step, mean if math.isfinite(mean) else None) for step, mean in points))


def _single(parameters: dict[str, object]) -> dict[str, str | float | int | bool | None]:
    """Return parameters that are one value, as far as a list has room for them."""
    kept: dict[str, str | float | int | bool | None] = {}
    for name, value in parameters.items():
        if isinstance(value, str):
            kept[name[:_MOST_CHARACTERS]] = value[:_MOST_CHARACTERS]
        elif value is None or isinstance(value, bool | int | float):
            kept[name[:_MOST_CHARACTERS]] = value
        if len(kept) >= _MOST_PARAMETERS:
            break
    return kept
