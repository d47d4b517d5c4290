"""The verdicts of runs: concluded in the background, one run after the other, and kept on disk for those that ended."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.look.insight import Facts
from otel_rl.look.insight.conclude import facts_of_recorded
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.series import blocks
from otel_rl.look.reader.runs import open_run
from otel_rl.look.terminal.past import present_of_archive
from otel_rl.look.ui.changes import Fingerprint
from otel_rl.recorder.archive.present import RunPresent, present_of
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import read_json, write_atomically
from otel_rl.recorder.files.modes import PRIVATE, make_directory
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LIVE_EVERY_S = 5.0
"""Seconds between two readings of a run that goes on: one takes up to 2 s of CPU."""
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
    present: RunPresent | None = None  # its present, if no agent left a summary of it
    curve: MainCurve | None = None  # its first main metric over all steps
    parameters: dict[str, str | float | int | bool | None] = {}  # its parameters, those that are one value
    fingerprint: Fingerprint = ()  # of what it was read from
    made_by: str = ""  # the version of otel-rl that concluded


class _Wanted(NamedTuple):
    path: Path
    fingerprint: Fingerprint
    is_live: bool


class VerdictReader:
    """Reads runs on a thread of its own, those that go on first.

    Args:
        done: Called on the thread with the key of a run and its verdict.
        cache: The directory in which verdicts of ended runs are kept; `None` to keep none.
    """

    def __init__(self, done: Callable[[str, RunVerdict], None], cache: Path | None = None) -> None:
        self._done, self._cache = done, cache
        self._wanted: dict[str, _Wanted] = {}
        self._read_at: dict[str, float] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._read_all, name="otel-rl-verdicts", daemon=True)
        self._thread.start()

    def want(
        self, key: str, path: Path, fingerprint: Fingerprint, *, is_live: bool, known: RunVerdict | None = None
    ) -> None:
        """Ask for the verdict of a run, unless the known one is of the same files."""
        if known is not None and known.fingerprint == fingerprint and not is_live:
            return
        with self._changed:
            self._wanted[key] = _Wanted(path, fingerprint, is_live)
            self._changed.notify()

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
            try:
                self._done(key, self._verdict_of(key, wanted))
            except Exception as error:  # one run that cannot be read hides no other
                _warnings.warn(f"{wanted.path}: {error}")
            self._read_at[key] = time.monotonic()

    def _next(self) -> tuple[str, _Wanted] | None:
        """Wait for a run that is to be read, and return it; `None` at the end."""
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                due = {key: self._read_at.get(key, -_LIVE_EVERY_S) + _LIVE_EVERY_S for key in self._wanted}
                ready = [key for key, at in due.items() if at <= now or not self._wanted[key].is_live]
                if ready:
                    key = min(ready, key=lambda key: (not self._wanted[key].is_live, due[key], self._age(key)))
                    return key, self._wanted.pop(key)
                self._changed.wait(min(due.values()) - now if due else None)
        return None

    def _age(self, key: str) -> int:
        """Return what sorts runs, those that changed last first: somebody looks for them."""
        return -max(self._wanted[key].fingerprint, default=0)

    def _verdict_of(self, key: str, wanted: _Wanted) -> RunVerdict:
        if wanted.is_live:
            return _read(wanted)
        if (kept := self._kept(key, wanted)) is not None:
            return kept
        verdict = _read(wanted)
        self._keep(key, verdict)
        return verdict

    def _kept(self, key: str, wanted: _Wanted) -> RunVerdict | None:
        if self._cache is None:
            return None
        kept = read_json(self._cache / f"{key}.json", RunVerdict)
        is_valid = kept is not None and kept.fingerprint == wanted.fingerprint and kept.made_by == version("otel-rl")
        return kept if is_valid else None

    def _keep(self, key: str, verdict: RunVerdict) -> None:
        if self._cache is None:
            return
        try:
            write_atomically(self._cache / f"{key}.json", msgspec.json.encode(verdict), PRIVATE.file)
        except OSError as error:
            _warnings.warn(f"{self._cache}: {error.strerror}; verdicts are not kept")


def _read(wanted: _Wanted) -> RunVerdict:
    run = open_run(wanted.path)
    is_summed_up = present_of(run.place).is_complete
    recorded = RecordedRun(run)
    facts = facts_of_recorded(recorded)
    return RunVerdict(
        facts=facts,
        curve=_curve_of(recorded, facts.metrics),
        present=None if is_summed_up else present_of_archive(run.place, time.time_ns()),
        parameters=_single(run.parameters),
        fingerprint=wanted.fingerprint,
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


def cache_directory() -> Path | None:
    """Return the directory of this user in which the page keeps what it has computed; `None` if there is none."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path("~/.cache").expanduser()
    place = base / "otel-rl" / "page"
    try:
        make_directory(place.parent, PRIVATE.directory)
        with OwnDirectory(place, PRIVATE.directory):
            return place
    except OSError as error:
        _warnings.warn(f"{place}: {error.strerror or error}; the page keeps nothing between two starts")
        return None


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
