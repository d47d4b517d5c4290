"""One run of a tracker, and the run of otel-rl that records it."""

from __future__ import annotations

import math
import re
from itertools import takewhile
from mmap import PAGESIZE, mmap
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from otel_rl.recorder.trainer.current import is_open, recorder_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.frameworks.plan import Plan
    from otel_rl.frameworks.recording import Recording
    from otel_rl.recorder.trainer.run import Run

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
_PLAIN = (int, bool)
_REFUSED = 64  # how many refusals are kept of a run that has not begun; texts alone never begin it


class TrackerRun:
    """A run of a tracker, or a directory of TensorBoard.

    Attributes:
        tracker: The name of the tracker.
        name: Its name; the run of otel-rl gets it.
        project: Its project; empty if it has none.
        directory: The directory of TensorBoard; empty for other trackers.
        users: The open objects that log to it. It has ended if there are none.
        prefix: What its names begin with.
        plan: Which run records it, decided at a fork before its first value.
        is_of_parent: If true, this process was forked since.
        repeats: If true, the tracker has removed its last values, and logs their steps again.
    """

    def __init__(self, tracker: str, name: str, project: str = "", directory: str = "") -> None:
        self.tracker, self.name, self.project, self.directory = tracker, name, project, directory
        self.users: WeakSet[Any] = WeakSet()
        self.prefix = ""
        self.plan: Plan | None = None
        self._calls: mmap | None = None
        self.is_of_parent = self.repeats = False
        self._home: Home | None = None
        self._params: dict[str, Any] = {}
        self._refused: list[str] = []

    @property
    def home(self) -> Home | None:
        """The run of otel-rl that records it now."""
        return None if self._home is None or self._home.is_over else self._home

    @property
    def is_left(self) -> bool:
        """Whether this process was forked since, and the run that recorded it has ended."""
        return self.is_of_parent and self.was_recorded and self.home is None

    @property
    def was_recorded(self) -> bool:
        """Whether a run of otel-rl has, or had, a value of it."""
        return self._home is not None

    @property
    def next_step(self) -> int:
        """The step of the next call without a step, as forked processes count it."""
        return 0 if self._calls is None else int.from_bytes(self._calls[:8], "little")

    @next_step.setter
    def next_step(self, step: int) -> None:
        if self._calls is not None:
            self._calls[:8] = step.to_bytes(8, "little")

    @property
    def has_params(self) -> bool:
        """Whether it has parameters."""
        return bool(self._params)

    @property
    def last_home(self) -> Home | None:
        """The run that recorded it, if a run of a tracker began it and it has ended."""
        return None if self._home is None or self._home.recording is None else self._home

    def follow(self, plan: Plan) -> None:
        """Share a plan, and the count of calls, with the process that is about to be forked."""
        self.plan = plan
        self._calls = self._calls or mmap(-1, PAGESIZE)

    def move_to(self, home: Home, prefix: str) -> None:
        """Record into this run of otel-rl from now on."""
        self._home, self.prefix = home, prefix
        home.tracker_runs.append(self)
        if self._params:
            home.run.params({f"{prefix}{name}": value for name, value in [*self._params.items()]})  # threads add to it
        while self._refused:
            self.refuse(self._refused.pop(0))

    def params(self, values: Mapping[str, Any]) -> None:
        """Record parameters, at the latest when the first number begins a run."""
        self._params |= values
        if values and (home := self.home) is not None:
            home.run.params({f"{self.prefix}{name}": value for name, value in values.items()})

    def rename(self, name: str) -> None:
        """Take another name; a run of otel-rl that has begun keeps its own, and has this one as a parameter."""
        if (self.was_recorded or (self.plan is not None and self.plan.is_announced)) and name != self.name:
            self.params({f"{self.tracker}.name": name})
        self.name = name

    def refuse(self, text: str) -> None:
        """Count something that is not recorded, at the latest when the first number begins a run."""
        if (home := self.home) is not None:
            recorder_of(home.run).refuse("not_captured", text)
        elif len(self._refused) < _REFUSED:
            self._refused.append(text)

    def is_with(self, other: TrackerRun) -> bool:
        """Return whether TensorBoard shows both as parts of one training, or a fork has found that it does."""
        if self.plan is not None and self.plan is other.plan:
            return True
        if not self.directory or not other.directory or self.tracker != other.tracker:
            return False
        if _NUMBER.findall(self.directory) != _NUMBER.findall(other.directory):
            return False
        inside = common([self.directory, other.directory]) in (self.directory, other.directory)
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
            curve = source, step, _kept(value)
            owner = self._curves.setdefault(full, curve)  # threads ask at once
            if owner[0] is not source:
                if owner[0].tracker != source.tracker and _is_same(owner, step, value):
                    continue
                full = self._free(source, full)
            self._curves[full] = curve
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


def common(directories: Sequence[str]) -> str:
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
