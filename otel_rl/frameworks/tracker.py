"""The numbers that a trainer gives to a tracker, as they are recorded.

Every number that the tracker charts is recorded, a truth value as 0 or 1 and an array of one element as its element;
everything else is counted. Names are those of the tracker; nested ones are joined as in its charts (`loss.policy` in
W&B), otherwise with a slash (`loss/policy`), as `Run.log` does. `tracker_runs` decides the run, and the name in it.
"""

from __future__ import annotations

import operator
import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import otel_rl
from otel_rl.frameworks.charted import element, flat
from otel_rl.frameworks.tracker_runs import TRACKER_RUNS
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.frameworks.tracker_run import Home, TrackerRun

logger = log_of("otel_rl")
on_step: list[Callable[[int], None]] = []
"""Called with the step of each value of the run of this process, before it is recorded."""
_OWN_THREADS = "otel-rl-"  # the names of otel-rl's threads, which write to trackers too
_OFF = "%s is switched off; otel-rl records what it is given"
_COUNTED_TWICE = "{name}: --capture {tracker} knows no step in a forked process; log with a step, or in the parent"
_OF_PARENT = "%s: the run %s was begun before this process was forked; log in its parent, or begin one here"


def _renew_counting() -> None:
    global _counting
    _counting = threading.RLock()


# An RLock, since a handler of a signal may log too; another thread of the parent may have held it at the fork.
_counting = threading.RLock()
os.register_at_fork(after_in_child=_renew_counting)


class Tracker:
    """A tracker whose values are recorded.

    Args:
        name: Its name.
        between: How its charts join nested names.
    """

    def __init__(self, name: str, between: str = "/") -> None:
        self.name, self._between = name, between
        self._given_up = self._has_steps = False
        self._said: set[tuple[object, ...]] = set()
        self._next: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def run(
        self, key: str, user: object = None, *, name: object = None, project: object = None, directory: str = ""
    ) -> TrackerRun:
        """Return one of its runs, which is open as long as its user is.

        Args:
            key: What is different for each of its runs.
            user: An open object that logs to it.
            name: The name of the run; by default the key.
            project: The project of the run.
            directory: The directory of a writer.
        """
        return TRACKER_RUNS.of(self.name, key, user, str(name or ""), str(project or ""), directory)

    def count(self, known: TrackerRun, run: object, step: object, first: int, *, stays: bool = False) -> Any:
        """Return the step of a call, by a count of calls as the tracker has it.

        Two threads may see the tracker's own counter at one value, and one of two numbers would be lost.

        Args:
            known: The run, as it is recorded.
            run: The tracker's run.
            step: The step in the call; `None` if it has none.
            first: The step of its first call without a step.
            stays: If true, the next call may add to the same step.
        """
        given = whole(step)
        if step is not None and given is None:
            return step
        with _counting:
            ahead = max(self._next.get(run, first), known.next_step)  # forked processes may have counted on
            now = ahead if given is None else given
            self._next[run] = known.next_step = max(ahead, now if stays else now + 1)
        return now

    def flat(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values under the names of the tracker's charts."""
        return dict(flat(values, between=self._between))

    def record(
        self, run: TrackerRun, values: Mapping[str, Any], step: object, *, counts: bool = True, own: bool = False
    ) -> None:
        """Record the numbers among the values, and count the others.

        Args:
            run: Whose they are.
            values: Values by name.
            step: Their step.
            counts: If true, the step is one of the training; otherwise it is a counter of the tracker's own.
            own: If true, the call has no step, and this is the tracker's. It counts until a call has one.
        """
        if self._ignores():
            return
        values = self.flat(values)
        numbers = {name: found for name, value in values.items() if (found := number(value)) is not None}
        at = whole(step)
        for name, value in values.items():
            if name not in numbers:
                self.not_captured(run, name, type(value).__name__)
        if (home := self._home(run, at, has_numbers=bool(numbers))) is None:
            return
        if at is None and step is not None:
            self.not_captured(run, next(iter(values), ""), f"step {text_of(step)}, which a row cannot have")
            return
        # Each forked process counts on by itself, and several values would have one step.
        if own and numbers and run.is_of_parent:
            run.refuse(_COUNTED_TWICE.format(name=next(iter(values), ""), tracker=self.name))
            return
        self._has_steps |= counts and not own
        if at is not None and counts and not (own and self._has_steps) and home.run is otel_rl.current():
            for see in on_step:
                see(at)
        home.log(run, numbers, at)

    def summarize(self, run: TrackerRun, values: Mapping[str, Any]) -> None:
        """Record numbers that the tracker shows once for the whole run."""
        if self._ignores():
            return
        numbers = {name: found for name, value in self.flat(values).items() if (found := number(value)) is not None}
        if numbers and (home := self._home(run, None, has_numbers=True)) is not None:
            home.summarize(run, numbers)

    def not_captured(self, run: TrackerRun, name: object, what: str) -> None:
        """Count something of which otel-rl has no record."""
        run.refuse(f"{text_of(name)}: --capture {self.name} records numbers, not a {what}")

    def end(self, run: TrackerRun, user: object, *, ends: bool = False) -> None:
        """Note that an object logs no more; if nothing else does, and the tracker takes no more, the run ends."""
        TRACKER_RUNS.end(run, user, ends=ends)

    def say_once(self, text: str, *details: object) -> None:
        """Log a warning, once in this process for its first detail."""
        if (text, details[:1]) not in self._said:
            self._said.add((text, details[:1]))
            logger.warning(text, *details)

    def say_off(self) -> None:
        """Say that the tracker is switched off."""
        self.say_once(_OFF, self.name)

    def _ignores(self) -> bool:
        """Return whether a setting is wrong, or this is a thread of otel-rl's own."""
        return self._given_up or threading.current_thread().name.startswith(_OWN_THREADS)

    def _home(self, run: TrackerRun, step: int | None, *, has_numbers: bool) -> Home | None:
        if run.home is None and not has_numbers and otel_rl.current() is None:
            return None
        try:
            home = TRACKER_RUNS.home_of(run, step)
        except otel_rl.SettingsError:
            # Once: the trainer logs in every step, and would repeat the error (hooks/test_capture.py).
            self._given_up = True
            raise
        if home is None:
            self.say_once(_OF_PARENT, self.name, run.name)
        return home


def whole(value: object) -> int | None:
    """Return a whole number of 0 or more of any kind that a trainer holds; `None` for anything else."""
    if type(value) is int:
        return value if value >= 0 else None
    found = number(value)
    if found is None or isinstance(value, bool):
        return None
    try:
        index = int(found) if float(found).is_integer() else operator.index(found)
    except (TypeError, ValueError, OverflowError):
        return None
    return index if index >= 0 else None


def number(value: Any) -> Any:
    """Return what trackers chart for a value: a number, or an array without dimensions; `None` if nothing."""
    value = element(value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (str, bytes)):
        return None
    if isinstance(shape := getattr(value, "shape", None), tuple):
        return None if shape else value
    try:
        return float(value) if hasattr(value, "__float__") else None
    except Exception:  # a foreign object may raise anything
        return None
