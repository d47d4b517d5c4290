"""The owner of a captured value: the run of otel-rl for each run of a tracker, and the name of the value in it.

A tracker draws one curve for each name in each of its runs; TensorBoard does so in each directory. So a value belongs
to the tracker, to that run or directory, and to its name:

* Each run of a tracker is a run of otel-rl. Runs that are open at once are recorded at once.
* Two directories of TensorBoard are in one run if one is inside the other, or if both have an open writer, unless the
  numbers in their paths differ, as those of trials do. Names then begin with the directory.
* If the script or a framework has begun a run, all values are in it. Names of a tracker's second run begin with the
  name of that run.
* A second tracker records into the run of the first one. Where both draw a name, equal values are one value, and others
  have the name of their tracker in front.
"""

from __future__ import annotations

import atexit
import math
import os
import re
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import otel_rl
from otel_rl.frameworks.recording import Recording, unless_set
from otel_rl.recorder.trainer.current import is_open, steps_of, turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.recorder.trainer.run import Run

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
_PLAIN = (int, bool)


class TrackerRun:
    """A run of a tracker, or a directory of TensorBoard.

    Attributes:
        tracker: The name of the tracker.
        name: Its name; the run of otel-rl gets it.
        project: Its project; empty if it has none.
        directory: The directory of TensorBoard; empty for other trackers.
        users: The open objects that log to it. It is over if there are none.
        prefix: What its names begin with.
        is_of_parent: If true, this process was forked since.
    """

    def __init__(self, tracker: str, name: str, project: str = "", directory: str = "") -> None:
        self.tracker, self.name, self.project, self.directory = tracker, name, project, directory
        self.users: WeakSet[Any] = WeakSet()
        self.prefix = ""
        self.is_of_parent = False
        self._home: Home | None = None
        self._params: dict[str, Any] = {}

    @property
    def home(self) -> Home | None:
        """The run of otel-rl that records it now."""
        return None if self._home is None or self._home.is_over else self._home

    @property
    def was_recorded(self) -> bool:
        """Whether a run of otel-rl has, or had, a value of it."""
        return self._home is not None

    @property
    def has_params(self) -> bool:
        """Whether it has parameters."""
        return bool(self._params)

    @property
    def last_home(self) -> Home | None:
        """The run that recorded it, if a run of a tracker began it and it has ended."""
        return None if self._home is None or self._home.recording is None else self._home

    def move_to(self, home: Home, prefix: str) -> None:
        """Record into this run of otel-rl from now on."""
        self._home, self.prefix = home, prefix
        home.tracker_runs.append(self)
        if self._params:
            home.run.params({f"{prefix}{name}": value for name, value in self._params.items()})

    def params(self, values: Mapping[str, Any]) -> None:
        """Record parameters, at the latest when the first number begins a run."""
        self._params |= values
        if (home := self.home) is not None:
            home.run.params({f"{self.prefix}{name}": value for name, value in values.items()})

    def is_with(self, other: TrackerRun) -> bool:
        """Return whether TensorBoard shows both as parts of one training."""
        if not self.directory or not other.directory or self.tracker != other.tracker:
            return False
        if _NUMBER.findall(self.directory) != _NUMBER.findall(other.directory):
            return False
        inside = _common([self.directory, other.directory]) in (self.directory, other.directory)
        return inside or (bool(self.users) and bool(other.users))


class Home:
    """A run of otel-rl, and the runs of trackers that it records.

    Args:
        run: The run.
        recording: What began it; `None` if the script or a framework did.

    Attributes:
        tracker_runs: The runs of trackers in it, in the order of their first values.
        last: The last step at which it has a value; -1 if it has none.
    """

    def __init__(self, run: Run, recording: Recording | None = None) -> None:
        self.run, self.recording = run, recording
        self.tracker_runs: list[TrackerRun] = []
        self.last = -1
        self._curves: dict[str, tuple[TrackerRun, int | None, object]] = {}
        self._summaries: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return not is_open(self.run)

    @property
    def is_used(self) -> bool:
        """Whether one of the tracker's runs that it was begun for is open, or it was not begun for any."""
        first = next(iter(self.tracker_runs), None)
        return self.recording is None or any(
            each.users for each in self.tracker_runs if first is None or each.tracker == first.tracker
        )

    def log(self, source: TrackerRun, values: Mapping[str, Any], step: int | None) -> None:
        """Record values of one of its runs."""
        named: dict[str, Any] = {}
        for name, value in values.items():
            full = source.prefix + name
            owner = self._curves.get(full)
            if owner is not None and owner[0] is not source:
                if owner[0].tracker != source.tracker and _is_same(owner, step, value):
                    continue
                full = self._free(source, full)
            self._curves[full] = source, step, _kept(value)
            named[full] = value
        if step is not None:
            self.last = max(self.last, step)
        if self.recording is not None:
            steps_of(self.run).training_ended = False
        if named:
            self.run.log(named, step=step)

    def summarize(self, source: TrackerRun, values: Mapping[str, Any]) -> None:
        """Record values that the tracker shows once for the whole run, in the last row."""
        for name, value in values.items():
            full = source.prefix + name
            is_curve = full in self._curves and full not in self._summaries
            chosen = f"summary/{name}" if is_curve else name
            self._summaries.add(source.prefix + chosen)
            self.log(source, {chosen: value}, max(self.last, 0))

    def end_or_rest(self, *, ends: bool) -> None:
        """End the run, or let it end with the next one or the process, if no run of its tracker is open."""
        if self.recording is not None and not self.is_used and not self.is_over:
            if ends:
                self.recording.finish()
            else:
                self.recording.rest()

    def _free(self, source: TrackerRun, name: str) -> str:
        """Return a name that no other run of a tracker has, for a name that one has."""
        others = {each.tracker for each in self.tracker_runs if each is not source}
        front = source.tracker if source.tracker not in others else f"{source.tracker}/{source.name}"
        while (owner := self._curves.get(name := f"{front}/{name}")) is not None and owner[0] is not source:
            pass
        return name


class TrackerRuns:
    """All runs of trackers that this process logs to."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], TrackerRun] = {}
        self._homes: list[Home] = []
        os.register_at_fork(after_in_child=self._leave_to_parent)
        atexit.register(self._finish)  # before the end of the runs, which does not wait for exporters

    def of(
        self, tracker: str, key: str, user: object, name: str = "", project: str = "", directory: str = ""
    ) -> TrackerRun:
        """Return the run of a tracker, which is open as long as its user is.

        Args:
            tracker: The name of the tracker.
            key: What is different for each of its runs.
            user: An open object that logs to it; `None` if nobody opens it.
            name: Its name, and the others as in `TrackerRun`.
            project: Its project.
            directory: Its directory.
        """
        found = self._runs.get((tracker, key))
        if found is None:
            found = self._runs.setdefault((tracker, key), TrackerRun(tracker, name or key, project, directory))
        if user is not None:
            found.users.add(user)
        return found

    def home_of(self, source: TrackerRun, step: int | None) -> Home | None:
        """Return the run of otel-rl that records a run of a tracker; begin it if there is none.

        Args:
            source: The run of the tracker.
            step: The step of its next value.

        Returns:
            The run; `None` in a process that was forked after the tracker's run began.

        Raises:
            SettingsError: A setting is wrong.
        """
        if source.is_of_parent or (home := source.home) is not None:
            return source.home
        with turn():
            is_new = self._present(source) is None
        if is_new:
            self._finish()  # without the lock: it waits for exporters
        with turn():
            home = source.home or self._present(source) or self._begin(source, step)
            if source.home is None:
                source.move_to(home, self._prefix(source, home))
        return home

    def end(self, source: TrackerRun, user: object, *, ends: bool) -> None:
        """Note that an object logs no more to a run of a tracker.

        Args:
            source: The run of the tracker.
            user: The object.
            ends: If true, the tracker takes no more values of the run.
        """
        source.users.discard(user)
        if not source.users and (home := source.home) is not None:
            home.end_or_rest(ends=ends)

    def _present(self, source: TrackerRun) -> Home | None:
        """Return the run that is open for a run of a tracker; `None` if there is none."""
        self._homes = [home for home in self._homes if not home.is_over]
        present = otel_rl.current()
        if present is not None and all(home.run is not present for home in self._homes):
            self._homes.append(Home(present))
        for home in self._homes:
            of_tracker = [each for each in home.tracker_runs if each.tracker == source.tracker]
            if home.recording is None or any(each.is_with(source) for each in of_tracker):
                return home
            if not of_tracker and home.is_used:
                return home
        return None

    def _begin(self, source: TrackerRun, step: int | None) -> Home:
        """Begin a run, or another attempt of the run that recorded the tracker's run and has ended."""
        before, at_once = source.last_home, otel_rl.current() is not None
        if before is not None and step is not None and step > before.last:
            recording = Recording(after=before.recording, at_once=at_once)
        else:
            place = _common([source.directory, *self._together(source)])
            name = PurePath(place).name or source.name
            recording = Recording(at_once=at_once, **unless_set(project=source.project, name=name))
        home = Home(recording.run, recording)
        self._homes.append(home)
        return home

    def _together(self, source: TrackerRun) -> list[str]:
        return [each.directory for each in self._runs.values() if each is not source and each.is_with(source)]

    def _prefix(self, source: TrackerRun, home: Home) -> str:
        """Return what names of a run of a tracker begin with."""
        before = [each for each in home.tracker_runs if each.tracker == source.tracker]
        if not source.directory:
            return f"{source.name}/" if before else ""
        first = next((each.directory for each in before if not each.prefix), "")
        others = [first] if first else [*(each.directory for each in before), *self._together(source)]
        path = source.directory.removeprefix(_common([source.directory, *others])).strip("/")
        return f"{path or PurePath(source.directory).name}/" if path or first else ""

    def _finish(self) -> None:
        """End the runs whose trackers are done."""
        for home in list(self._homes):
            home.end_or_rest(ends=True)

    def _leave_to_parent(self) -> None:
        self._homes.clear()
        for each in self._runs.values():
            each.is_of_parent = each.is_of_parent or each.was_recorded


TRACKER_RUNS = TrackerRuns()


def _common(directories: Sequence[str]) -> str:
    """Return the directory that contains all, by their names alone: some are addresses."""
    parts = [directory.split("/") for directory in directories]
    same = takewhile(lambda names: len({*names}) == 1, zip(*parts, strict=False))
    return "/".join(names[0] for names in same)


def _kept(value: object) -> object:
    """Return a value as it can be compared later; `None` for what a device or a graph would be kept for."""
    if type(value) is float:
        return "nan" if math.isnan(value) else value
    return value if type(value) in _PLAIN else None


def _is_same(before: tuple[TrackerRun, int | None, object], step: int | None, value: object) -> bool:
    """Return whether a second tracker got the value that the first one has; tensors of one step are taken for equal."""
    _, last, known = before
    other = _kept(value)
    return last == step and (known is None or other is None or known == other)
