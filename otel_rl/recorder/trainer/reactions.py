"""Calls functions of the trainer with the events of the agent, on the trainer's thread when a step begins or ends."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.directory import agent_events
from otel_rl.recorder.errors.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl.export import Event
    from otel_rl.recorder.trainer.recorder import Recorder


_MOST_SEEN = 4096
"""Events that are remembered: an agent that is started again may make some of them again."""


class Reactions:
    """The functions of a run that react to events, and the events that they were called with.

    Args:
        place: Returns the file of events, which moves with the run directory.
        recorder: Counts what the functions raise.
        since: Unix nanoseconds; events before are of an earlier attempt.
    """

    def __init__(self, place: Callable[[], Path], recorder: Recorder, since: int) -> None:
        self._place, self._recorder, self._since = place, recorder, since
        self._functions: list[tuple[str, Callable[[Event], object]]] = []
        self._seen = dict[bytes, None]()
        self._file: tuple[int, int] | None = None
        self._is_inside = False

    def add(self, pattern: str, function: Callable[[Event], object]) -> None:
        """Add a function for events whose name matches a pattern."""
        self._functions.append((pattern, function))

    def react(self) -> None:
        """Call the functions with the events that are new in the file; without new ones, it is one `stat`."""
        if self._is_inside:  # a function that begins a step
            return
        self._is_inside = True
        try:
            with Guard(partial(self._recorder.refuse_error, "on_event")):
                for event in self._new():
                    self._call(event)
        finally:
            self._is_inside = False

    def _new(self) -> list[Event]:
        place = self._place()
        try:
            status = os.stat(place)  # noqa: PTH116 - a call costs more
        except OSError:  # no event was made so far
            return []
        if self._file == (status.st_mtime_ns, status.st_ino):
            return []
        self._file = status.st_mtime_ns, status.st_ino
        new: list[Event] = []
        for event in agent_events.read(place):
            identity = msgspec.json.encode(event)
            if event.time_unix_nano >= self._since and identity not in self._seen:
                # Remembered before the call: if Ctrl-C leaves the function, it is not called with this event again
                # (recorder/trainer/test_on_event.py).
                self._seen[identity] = None
                new.append(event)
        for identity in [*self._seen][:-_MOST_SEEN]:
            del self._seen[identity]
        return new

    def _call(self, event: Event) -> None:
        for pattern, function in [*self._functions]:
            if fnmatchcase(event.name, pattern):
                with Guard(partial(self._recorder.refuse_error, "on_event")):
                    function(event)
