"""Children of a process that records, which begin a run again without meaning to.

multiprocessing's `spawn` and `forkserver` import the script again in each child, and with it an `init` at its top. A
child with the identity of its parent's run would be the same rank. Both become workers of the parent's run.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory import parts
from otel_rl.recorder.directory.trainings import renamed
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.processes import ancestors
from otel_rl.recorder.journal.claim import is_journal, is_rank, who_of
from otel_rl.recorder.settings.joining import WORKER, find_parent
from otel_rl.recorder.settings.settings import JobSettings, NewSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from otel_rl.recorder.journal.claim import HeldError

logger = log_of("otel_rl")
_AGAIN = (
    "a child of multiprocessing has imported the script, and init() at its top begins run %s: put it below "
    "`if __name__ == '__main__':`"
)


def in_place_of_rerun(settings: Settings) -> Settings:
    """Return the settings; those of a worker of the parent's run if only the import of the script calls `init`."""
    if not isinstance(settings, NewSettings) or not _imports_main():
        return settings
    for run in filter(None, map(_run_of, _descriptors_above())):
        with suppress(OSError, ValueError):
            found = renamed(settings, directories.read_manifest(directories.at(run)).id)
            if directories.place_of(found) == run:
                return as_worker(found)
    logger.warning(_AGAIN, settings.id)
    return settings


def is_worker_of(settings: Settings, error: HeldError) -> bool:
    """Return whether a start whose rank is taken is a child of the process that has it, and means the same run."""
    if settings.role or error.holder is None or str(error.holder) not in _pids_above():
        return False
    # A job may have several runs, such as of a script that starts trainings one after the other.
    return not isinstance(settings, JobSettings) or _is_made_by_python() or find_parent(os.environ) is not None


def as_worker(settings: Settings) -> Settings:
    """Return the settings of a worker of the same run."""
    return replace(Settings(**asdict(settings)), role=WORKER, rank=0, world_size=1)


def _imports_main() -> bool:
    """Return whether this is called while a child of multiprocessing imports the script of its parent."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__mp_main__":
            return True
        frame = frame.f_back
    return False


def _is_made_by_python() -> bool:
    """Return whether multiprocessing has made this process; it knows its parent only after the import."""
    processes = sys.modules.get("multiprocessing.process")
    return _imports_main() or (processes is not None and processes.parent_process() is not None)


def _pids_above() -> list[str]:
    return [process.partition("/")[0] for process in ancestors()]


def _descriptors_above() -> Iterator[Path]:
    """Yield the open files of the processes above this one, as Linux shows them; a lock of a journal is one."""
    for pid in _pids_above():
        with suppress(OSError):
            yield from Path(f"/proc/{pid}/fd").iterdir()


def _run_of(descriptor: Path) -> Path | None:
    """Return the run directory if an open file is the journal of a rank."""
    with suppress(OSError):
        journal = descriptor.readlink()
        if journal.parent.name == parts.JOURNALS and is_journal(journal.name) and is_rank(who_of(journal.name)):
            return journal.parents[3]
    return None
