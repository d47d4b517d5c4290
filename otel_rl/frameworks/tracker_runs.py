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
* A forked child records into the run of its parent, as a worker. If that has not begun, the fork decides which it is.
"""

from __future__ import annotations

import atexit
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.plan import Plan
from otel_rl.frameworks.recording import Recording, unless_set
from otel_rl.frameworks.tracker_run import Home, TrackerRun, common
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.trainer.current import turn, was_first

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = log_of("otel_rl")
_TWO_RUNS = "%s: run %s records it, and run %s what forked workers logged before; call init() before they start"


class TrackerRuns:
    """All runs of trackers that this process logs to."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], TrackerRun] = {}
        self._homes: list[Home] = []
        os.register_at_fork(before=self._decide, after_in_child=self._leave_to_parent)
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
        if found is not None and user is not None and found.is_left and user not in found.users:
            del self._runs[tracker, key]  # opened again, in this forked process
            found = None
        if found is None:
            found = self._runs.setdefault((tracker, key), TrackerRun(tracker, name or key, project, directory))
        elif name:
            found.rename(name)
        if user is not None:
            found.users.add(user)
        return found

    def home_of(self, source: TrackerRun, step: int | None) -> Home | None:
        """Return the run of otel-rl that records a run of a tracker; begin it if there is none.

        Args:
            source: The run of the tracker.
            step: The step of its next value.

        Returns:
            The run; `None` in a process that was forked after the tracker's run began, once that run has ended.

        Raises:
            SettingsError: A setting is wrong.
        """
        if source.is_left or (home := source.home) is not None:
            return source.home
        self.make_way(source)
        with turn():
            home = source.home or self._present(source) or self._begin(source, step)
            if source.home is None:
                source.move_to(home, self._prefix(source, home))
                if source.plan is not None and (before := source.plan.announce(home.run)) != home.run.id:
                    logger.warning(_TWO_RUNS, source.name, home.run.id, before)
        return home

    def make_way(self, source: TrackerRun) -> None:
        """End the runs whose trackers are done, unless one of them will record a run of a tracker."""
        if source.home is None:
            with turn():
                is_new = self._present(source) is None
            if is_new:
                self._finish()  # without the turn: it waits for exporters

    def begin_newest(self) -> None:
        """Begin the run of the tracker's run that was opened last, before it has a value.

        Raises:
            SettingsError: A setting is wrong.
        """
        source = next((each for each in reversed([*self._runs.values()]) if each.users), None)
        if source is not None and otel_rl.current() is None:
            self.home_of(source, None)

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

    def repeat(self, source: TrackerRun) -> None:
        """Begin another attempt with the next value, as the tracker removes its later values of a run.

        Args:
            source: The run. In a run of otel-rl that has others, nothing is removed.
        """
        home = source.home
        if home is not None and home.recording is not None and home.tracker_runs == [source]:
            home.recording.finish()
            source.repeats = True

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
        if before is not None and step is not None and (source.repeats or step > before.last):
            source.repeats = False
            recording = Recording(after=before.recording, at_once=at_once)
        else:
            options = self._options(source)
            recording = Recording(at_once=at_once, **options)
            # Only one process may count its calls, or several values would have one step.
            source.is_of_parent = source.is_of_parent and not was_first(recording.run)
        home = Home(recording.run, recording)
        self._homes.append(home)
        return home

    def _options(self, source: TrackerRun) -> dict[str, Any]:
        """Return the keywords of `otel_rl.init` for a run; a forked child is a worker of what its parent begins."""
        named = {"project": source.project, "name": self._name(source)}
        source.plan = plan = source.plan or self._plan_with(source)
        if plan is None or any(each.plan is plan and each.was_recorded for each in [*self._runs.values()]):
            return unless_set(**named)
        return plan.options(in_child=source.is_of_parent, **named)

    def _plan_with(self, source: TrackerRun) -> Plan | None:
        """Return the plan of those without a value that a run is recorded with."""
        groups: dict[int, list[TrackerRun]] = {}
        for each in [*self._runs.values()]:
            if each.plan is not None and each.is_of_parent == source.is_of_parent:
                groups.setdefault(id(each.plan), []).append(each)
        waiting = (group for group in groups.values() if not any(each.was_recorded for each in group))
        return next((group[0].plan for group in waiting if _is_in(group, source)), None)

    def _name(self, source: TrackerRun) -> str:
        return PurePath(common([source.directory, *self._together(source)])).name or source.name

    def _together(self, source: TrackerRun) -> list[str]:
        others = [*self._runs.values()]  # at once: another thread may open a writer
        return [each.directory for each in others if each is not source and each.is_with(source)]

    def _prefix(self, source: TrackerRun, home: Home) -> str:
        """Return what names of a run of a tracker begin with."""
        before = [each for each in home.tracker_runs if each.tracker == source.tracker]
        if not source.directory:
            taken = {each.prefix for each in home.tracker_runs}
            names = (source.name, *(f"{source.name}-{number}" for number in range(2, len(taken) + 2)))
            return next(f"{name}/" for name in names if f"{name}/" not in taken) if before else ""
        first = next((each.directory for each in before if not each.prefix), "")
        others = [first] if first else [*(each.directory for each in before), *self._together(source)]
        path = source.directory.removeprefix(common([source.directory, *others])).strip("/")
        return f"{path or PurePath(source.directory).name}/" if path or first else ""

    def _finish(self) -> None:
        """End the runs whose trackers are done."""
        for home in list(self._homes):
            home.end_or_rest(ends=True)

    def _decide(self) -> None:
        """Before a fork, decide the runs of those without a value: either process may have the first one."""
        with harmless("fork"):
            runs = [*self._runs.values()]
            used = {id(each.plan) for each in runs if each.was_recorded}
            for source in runs:
                if not source.was_recorded and (source.plan is None or id(source.plan) in used):
                    source.follow(self._plan_with(source) or Plan(source.project, self._name(source)))

    def _leave_to_parent(self) -> None:
        for each in self._runs.values():
            each.is_of_parent = True


def _is_in(group: Sequence[TrackerRun], source: TrackerRun) -> bool:
    """Return whether a run of a tracker would be recorded together with others."""
    of_tracker = [each for each in group if each.tracker == source.tracker]
    if not of_tracker:
        return any(each.users for each in group)
    return any(each.is_with(source) for each in of_tracker)


TRACKER_RUNS = TrackerRuns()
