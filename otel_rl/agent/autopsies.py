"""Starts an autopsy when a process hangs or dies, in a process of its own, and emits the event of what it found.

Nobody waits for that process: if the agent ends first, the result is in `autopsy/` of the run directory alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.errors.sinks import log_of
from otel_rl.export import Event

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_rl.export import Item

logger = log_of(__name__)
_MODULE = "otel_rl.autopsy"
_MOST = 8
"""Autopsies that one agent starts: each stops no process, but reads much."""
_LARGEST = 1 << 16
"""Bytes of an event: a pipe holds so much."""
_ASKED = ("SIGTERM", "SIGINT", "SIGHUP")
"""Signals by which a user or a batch system ends a process."""


class Autopsies:
    """Starts one at a time, and one for all events of a turn.

    Args:
        run: The run directory.
        is_on: If false, none is started.
    """

    def __init__(self, run: Path, *, is_on: bool) -> None:
        self._run = run
        self._left = _MOST if is_on and _is_installed() else 0
        self._running: subprocess.Popen[bytes] | None = None
        self._step: int | None = None

    def look(self, items: Iterable[Item]) -> list[Event]:
        """Start one if an event among the items gives a reason; return the event of one that has found a cause."""
        found = self._ended()
        if self._left and self._running is None:
            reasons = ((cause, one.step) for one in items if isinstance(one, Event) and (cause := _cause(one)))
            for cause, self._step in itertools.islice(reasons, 1):
                self._start(cause)
        return found

    def _start(self, cause: str) -> None:
        self._left -= 1
        try:
            self._running = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(self._run), "--cause", cause],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # it goes on if the agent ends
            )
        except OSError as error:
            logger.warning("the autopsy cannot be started: %s", error)

    def _ended(self) -> list[Event]:
        """Return the event of the one that has ended; none if it failed, or names no cause."""
        if self._running is None or self._running.poll() is None:
            return []
        process, self._running = self._running, None
        assert process.stdout is not None
        with process.stdout as output, contextlib.suppress(msgspec.DecodeError):
            os.set_blocking(output.fileno(), False)  # a child that it has left may hold the other end
            found = msgspec.json.decode(output.read(_LARGEST) or b"", type=Event)
            logger.warning("autopsy: %s", found.attributes.get(semconv.AUTOPSY_VERDICT, ""))
            return [msgspec.structs.replace(found, step=self._step)]
        return []


def _cause(event: Event) -> str:
    """Return the reason for an autopsy; empty if an event is none."""
    attributes = event.attributes
    if event.name == semconv.EVENT_PHASE_STALLED:
        is_elsewhere = attributes.get(semconv.STALL_KIND) == "silent" and attributes.get(semconv.STALL_SCOPE) != "job"
        return "" if is_elsewhere else "stalled"  # of a silent machine there is nothing to see, unless others wait
    if event.name == semconv.EVENT_PROCESS_LOST:
        return "died"
    crashed = event.name == semconv.EVENT_PROCESS_FAILED and attributes.get(semconv.PROCESS_OUTCOME) == "crashed"
    return "died" if crashed and attributes.get(semconv.ERROR_TYPE) not in _ASKED else ""


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec(f"{_MODULE}.__main__") is not None
    except ImportError:
        return False
