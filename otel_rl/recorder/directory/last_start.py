"""The last start of a run, as its processes noted it before any agent knew of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from otel_rl.recorder.directory.attempt_entries import begun_at, begun_attempts, journals_here
from otel_rl.recorder.directory.directory import at
from otel_rl.recorder.facts.signs import LastStart
from otel_rl.recorder.files.locks import is_held
from otel_rl.recorder.files.own_files import is_own
from otel_rl.recorder.journal.claim import attempt_of

if TYPE_CHECKING:
    from pathlib import Path


def last_start(run: Path, known: int | None = None) -> LastStart | None:
    """Return the last start of a run; `None` if no process noted one, or none after a known attempt.

    A process of this machine lives if it holds the lock of its journal. Of a run of another user, and of processes of
    other machines, that is not asked.
    """
    with contextlib.suppress(OSError):
        directory = at(run)
        attempt = max(begun_attempts(directory), default=-1)
        if attempt < 0 or (known is not None and attempt <= known):
            return None
        begun = begun_at(directory, attempt).stat().st_mtime_ns
        journals = journals_here(directory) if is_own(run) else []
        held = [is_held(path) for path in journals if attempt_of(path.name) == attempt]
        return LastStart(attempt, begun, any(held) if held else None)
    return None
