"""Starts an autopsy when a process hangs or dies, in a process of its own that nobody waits for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

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

    def of(self, items: Iterable[Item]) -> None:
        """Start one if an event among the items gives a reason."""
        if not self._left:
            return
        cause = next((cause for one in items if isinstance(one, Event) and (cause := _cause(one))), "")
        if not cause or (self._running is not None and self._running.poll() is None):
            return
        self._left -= 1
        try:
            self._running = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(self._run), "--cause", cause],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # it goes on if the agent ends
            )
        except OSError as error:
            logger.warning("the autopsy cannot be started: %s", error)


def _cause(event: Event) -> str:
    """Return the reason for an autopsy; empty if an event is none."""
    attributes = event.attributes
    if event.name == semconv.EVENT_PHASE_STALLED:
        return "stalled"
    if event.name == semconv.EVENT_PROCESS_LOST:
        return "died"
    crashed = event.name == semconv.EVENT_PROCESS_FAILED and attributes.get(semconv.PROCESS_OUTCOME) == "crashed"
    return "died" if crashed and attributes.get(semconv.ERROR_TYPE) not in _ASKED else ""


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec(f"{_MODULE}.__main__") is not None
    except ImportError:
        return False
