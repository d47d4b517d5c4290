"""Starts an autopsy when a process hangs, is slow or dies, in a process of its own, and emits the event of its cause.

Nobody waits for that process: if the agent ends first, the result is in `autopsy/` of the run directory alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.export import Event, Hang
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files import programs
from otel_rl.recorder.files.asked_programs import end_group

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_rl.export import Item
    from otel_rl.recorder.files.programs import Program

logger = log_of(__name__)
ENTRY_POINT_GROUP = "otel_rl_autopsy"
"""Entry points of packages that are started with `python -m`; the first one is."""
_MOST = 8
"""Autopsies that one agent starts: each stops no process, but reads much."""
_MOST_OF_HANG = 2
"""Autopsies while processes hang."""
_LONGEST_S = 600.0
"""Time in seconds of an autopsy, after which it is ended with all that it has started: it takes 40 s at most."""
_LARGEST = 1 << 16
"""Bytes of an event: a pipe holds so much."""


class Autopsies:
    """Starts one at a time, and one for all events of a turn.

    Args:
        run: The run directory.
        is_on: If false, none is started.
    """

    def __init__(self, run: Path, *, is_on: bool) -> None:
        self._run = run
        self._module = autopsy_module() if is_on else ""
        self._left = _MOST if self._module else 0
        self._running: Program | None = None
        self._began = 0.0
        self._step: int | None = None
        self._hanging: set[object] = set()  # the hangs that last
        self._examined: set[object] = set()  # what was known of them when one was started

    def look(self, items: Iterable[Item]) -> list[Event]:
        """Start one if an item gives a reason; return the event of one that has found a cause."""
        events = self._ended()
        for item in items:
            if not isinstance(item, Hang | Event):
                continue
            if (cause := self._reason(item)) and self._left and self._running is None:
                self._step = item.step
                self._start(cause)
        return events

    def _reason(self, item: Hang | Event) -> str:
        """Return the reason for an autopsy that an item gives; empty if it gives none.

        While processes hang there are at most two: at first, and when it is known why they wait in vain.
        """
        if isinstance(item, Event):
            if item.name == semconv.EVENT_PHASE_RESUMED and not self._hanging:
                self._examined.clear()
            is_slow = item.name == semconv.EVENT_PHASE_STALLED and item.attributes.get(semconv.STALL_KIND) == "slow"
            return self._once("slow") if is_slow else "died" if _is_death(item) else ""
        if item.ended_unix_nano is not None:
            self._hanging.discard(item.of)
            if not self._hanging:
                self._examined.clear()
            return ""
        self._hanging.add(item.of)
        # Of a silent machine there is nothing to see, unless others wait for it.
        is_elsewhere = item.kind == "silent" and item.scope != "job"
        return "" if is_elsewhere else self._once((item.cause, item.culprits))

    def _once(self, known: object) -> str:
        """Return the reason if nothing was started with this knowledge."""
        if known in self._examined or len(self._examined) >= _MOST_OF_HANG or self._running is not None:
            return ""
        self._examined.add(known)
        return "stalled"

    def _start(self, cause: str) -> None:
        self._left -= 1
        try:
            # Detached: Ctrl-C and the end of the agent must not stop it in the middle of the processes that it
            # examines.
            self._began = time.monotonic()
            self._running = programs.start_python(
                *(f"{self._module}.__main__", str(self._run), "--cause", cause), output=programs.PIPE, is_detached=True
            )
        except OSError as error:
            logger.warning("the autopsy cannot be started: %s", error)

    def _ended(self) -> list[Event]:
        """Return the event of the one that has ended; none if it failed, or names no cause."""
        if self._running is not None and time.monotonic() - self._began > _LONGEST_S:
            end_group(self._running)
        if self._running is None or self._running.poll() is None:
            return []
        process, self._running = self._running, None
        assert process.stdout is not None
        with process.stdout as output, contextlib.suppress(msgspec.DecodeError):
            os.set_blocking(output.fileno(), False)  # a child that it has left may hold the other end
            event = msgspec.json.decode(output.read(_LARGEST) or b"", type=Event)
            logger.warning("autopsy: %s", event.attributes.get(semconv.AUTOPSY_VERDICT, ""))
            return [msgspec.structs.replace(event, step=self._step)]
        return []


def _is_death(event: Event) -> bool:
    """Return whether an event is the death of a process that nobody stopped."""
    attributes = event.attributes
    is_crash = event.name == semconv.EVENT_PROCESS_FAILED and attributes.get(semconv.PROCESS_OUTCOME) == "crashed"
    return is_crash or event.name == semconv.EVENT_PROCESS_LOST


def autopsy_module() -> str:
    """Return the module that makes autopsies, by its entry point; empty if none is installed."""
    modules = (point.module for point in entry_points(group=ENTRY_POINT_GROUP))
    return next((module for module in modules if _is_here(module)), "")


def _is_here(module: str) -> bool:
    """Return whether a module can be started, without importing it into the agent."""
    try:
        return importlib.util.find_spec(f"{module}.__main__") is not None
    except ImportError:
        return False
