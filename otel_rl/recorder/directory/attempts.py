"""Which attempt of a run a process belongs to.

An attempt is one start of the training: it begins with the first process that starts while none of its ranks is
running, and lasts until all of them have ended. A process that starts while an attempt runs belongs to that attempt,
also a rank that comes back alone. Machines that do not share the run directory decide from what they see, and the head
agent corrects that.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.directory.attempt_entries import Start, begun_at, newest, read_start, renew_lease
from otel_rl.recorder.files.atomic_files import write_first
from otel_rl.recorder.files.processes import process
from otel_rl.recorder.journal.claim import label
from otel_rl.recorder.settings.launcher import find_launch

if TYPE_CHECKING:
    from otel_rl.recorder.directory.attempt_entries import AttemptSeen
    from otel_rl.recorder.directory.directory import RunDirectory
    from otel_rl.recorder.settings.settings import Settings

_LATE_S = 1800.0
"""Seconds within which the last rank starts after the first one: the timeout of `torch.distributed`."""
_MOST_TRIES = 100


def belongs(own: Start, seen: AttemptSeen) -> bool:
    """Return whether a process that starts belongs to the newest attempt; otherwise it begins the next one."""
    begun = seen.begun
    if begun is not None and own.launch.restarts > begun.launch.restarts:
        return False  # the job was requeued
    # A process with a role goes with the last ranks. A rank that has forked a worker may have no journal yet.
    if seen.state == "running" or own.is_worker or (seen.has_ranks and not own.is_rank):
        return True
    if begun is None or seen.had_own:
        return False
    if not seen.has_ranks:
        return True  # processes with a role came first, or the rank that began it has no journal yet
    if own.has_supervisor(begun.host, begun.launch.supervisor):  # which counts the starts
        return own.launch.supervised == begun.launch.supervised
    is_late = seen.state != "failed" and own.world_size == begun.world_size  # the others may have ended in order
    return is_late and own.time - begun.time < _LATE_S


def this_start(settings: Settings) -> Start:
    """Return the start of this process."""
    return Start(
        launch=find_launch(os.environ),
        who=label(settings.role, settings.rank),
        world_size=settings.world_size,
        label=f"{settings.project}/{'' if settings.name == settings.id else settings.name}",
        host=socket.gethostname(),
        process=process(os.getpid()),
        command=hashlib.sha256("\0".join(sys.orig_argv).encode(errors="surrogateescape")).hexdigest()[:16],
        time=time.time(),
    )


def began(directory: RunDirectory, number: int) -> bool:
    """Return whether this process began an attempt."""
    start = read_start(begun_at(directory, number))
    return start is not None and (start.host, start.process) == (socket.gethostname(), process(os.getpid()))


def join(directory: RunDirectory, own: Start, least: int = 0) -> int:
    """Return the number of the attempt that a process belongs to, which begins if none runs.

    Args:
        directory: The run directory.
        own: The start of the process.
        least: The lowest number of an attempt that begins.

    Raises:
        OSError: The directory cannot be read or written.
    """
    for _ in range(_MOST_TRIES):
        seen = newest(directory, own.who)
        joins = seen is not None and belongs(own, seen)
        number = max(least, 0 if seen is None else seen.number + 1) if seen is None or not joins else seen.number
        if own.is_rank:  # before the attempt shows, so that other machines see it run
            renew_lease(directory, number)
        # Of ranks that begin an attempt at the same moment, one writes the entry; the others look again, and join it
        # (recorder/directory/test_attempts.py).
        if joins or write_first(begun_at(directory, number), msgspec.json.encode(own)):
            return number
    raise TimeoutError(f"{directory.attempts} changes constantly")
