"""Copies the backlog into the run directory, if the part of this machine is outside of it.

An agent does so when it ends with a backlog. If the part may be removed with the job, the agent also copies regularly
while an exporter is behind. A thread copies, because a network file system that hangs must not hang the agent.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING

from otel_rl.delivery import signs, undelivered
from otel_rl.delivery.copier import Copier
from otel_rl.errors.occasional import Occasional
from otel_rl.errors.sinks import log_of
from otel_rl.setup.file_systems import ends_with_job
from otel_rl.setup.parts import this_machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.delivery.outbox import Outbox
    from otel_rl.journal.segments import Position
    from otel_rl.setup.directory import RunDirectory

logger = log_of(__name__)
_EVERY_S = 5.0
"""Seconds between two checks; their cost depends only on the size of the backlog."""
_MOST_OF_TIME = 10
"""A copy is followed by a pause of this many times its own duration."""
_TOUCH_S = 15.0
_END_WITHIN_S = 20.0
"""Time in seconds for the last copy: Slurm sends SIGKILL 30 s after SIGTERM."""


class Rescue:
    """Copies the backlog of a part, if the part is outside of the run directory.

    Args:
        needed: Returns the place in the outbox before which nothing is needed.
        waiting: Returns how many items each exporter has not got.
        of_copy: If true, the part was made from a copy, which is always updated at the end.
    """

    def __init__(
        self,
        directory: RunDirectory,
        outbox: Outbox,
        needed: Callable[[], Position],
        waiting: Callable[[], dict[str, int]],
        *,
        of_copy: bool = False,
    ) -> None:
        self._directory, self._outbox, self._needed, self._waiting = directory, outbox, needed, waiting
        self._of_copy = of_copy
        self._place = undelivered.place_of(directory.path, directory.host)
        self._warnings = Occasional(logger)
        self._stopped, self._hurried = threading.Event(), threading.Event()
        self._has_copy = self._ends_with_job = False
        self._copier: Copier | None = None
        if is_elsewhere(directory):
            machine = None if of_copy else this_machine()
            self._copier = Copier(directory.path, directory.local, directory.host, machine)
            self._has_copy = undelivered.read(directory.path, directory.host) is not None
            self._ends_with_job = ends_with_job(directory.local, os.environ)
        self._thread = threading.Thread(target=self._run, name="otel-rl-rescue", daemon=True)

    @property
    def is_needed(self) -> bool:
        """Whether the part lies outside of the run directory."""
        return self._copier is not None

    def start(self) -> None:
        """Start to check for a backlog, if that is needed."""
        if self._copier is not None and not self._of_copy:
            self._thread.start()

    def hurry(self) -> None:
        """Make a copy now: the job ends, possibly before the exporters have closed."""
        self._hurried.set()

    def end(self, *, is_complete: bool, is_last: bool) -> None:
        """Make the last copy, or remove the copy if everything was delivered; wait at most 20 s."""
        if self._copier is None:
            return
        self._stopped.set()
        self._hurried.set()
        last = threading.Thread(target=self._end, args=(is_complete, is_last), name="otel-rl-rescue", daemon=True)
        last.start()
        last.join(_END_WITHIN_S)
        if last.is_alive():
            logger.warning("the backlog could not be copied into %s in time", self._directory.path)

    def _end(self, is_complete: bool, is_last: bool) -> None:
        if self._thread.is_alive():
            self._thread.join()
        if self._copier is not None and (self._of_copy or not is_complete):
            self._copy(self._copier, is_delivered=is_complete, is_last=is_last)
        elif self._copier is not None and self._has_copy:
            self._copier.remove()
        signs.alive(self._place).remove()

    def _run(self) -> None:
        sign = signs.alive(self._place)
        touched_at, pause, is_behind = -_TOUCH_S, _EVERY_S, self._has_copy
        while not self._stopped.is_set():
            is_last = self._hurried.wait(pause)
            pause = _EVERY_S
            began = time.monotonic()
            was_behind, is_behind = is_behind, bool(self._waiting())
            is_useful = is_last or (self._ends_with_job and (is_behind or was_behind))
            if self._copier is not None and is_useful and not self._stopped.is_set():
                if not self._has_copy:
                    sign.put(signs.own_name())
                self._copy(self._copier)
                pause = max(_EVERY_S, _MOST_OF_TIME * (time.monotonic() - began))
            if self._has_copy and began - touched_at > _TOUCH_S:
                touched_at = began
                sign.touch()
            if is_last:
                return

    def _copy(self, copier: Copier, *, is_delivered: bool = False, is_last: bool = False) -> None:
        try:
            with self._outbox.grown:
                end, checkpoint = self._outbox.end, self._outbox.checkpoint
            copier.copy(self._needed(), end, checkpoint, self._waiting(), is_delivered=is_delivered, is_last=is_last)
        except Exception as error:
            self._warnings.warn(f"the backlog cannot be copied into {self._directory.path}: {error}")
            return
        self._has_copy = True
        if self._stopped.is_set() and not is_delivered:
            logger.info("the backlog was copied to %s", self._place)


def is_elsewhere(directory: RunDirectory) -> bool:
    """Return whether the part of this machine is outside of the run directory."""
    return not directory.local.resolve().is_relative_to(directory.path.resolve())


def catch_up(directory: RunDirectory) -> None:
    """Continue from the copy of the backlog, if it is newer than the part of this machine.

    Raises:
        BlockingIOError: Another machine delivers from the copy now.
    """
    if not is_elsewhere(directory) or undelivered.read(directory.path, directory.host) is None:
        return
    place = undelivered.place_of(directory.path, directory.host)
    alive, taken = signs.alive(place), signs.taken(place)
    alive.put(signs.own_name())
    if taken.is_fresh():
        alive.remove()
        raise BlockingIOError(errno.EAGAIN, f"{taken.who()} delivers from its copy", str(directory.local))
    if undelivered.catch_up(directory.path, directory.host, directory.local):
        logger.info("the agent continues from %s", place)
