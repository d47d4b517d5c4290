"""When the files of a run changed: while the times are the same, so is what they say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from otel_rl.recorder.archive import marks
from otel_rl.recorder.archive.autopsies import FOLDER
from otel_rl.recorder.archive.files import ROWS_FILE
from otel_rl.recorder.archive.runs import MANIFEST
from otel_rl.recorder.directory.parts import ARCHIVE

if TYPE_CHECKING:
    from pathlib import Path

Fingerprint = tuple[int, ...]
"""Times of change, in nanoseconds."""


def of_present(path: Path) -> Fingerprint:
    """Return when the files changed by which a run goes on; of 1,000 runs in a few hundredths of a second."""
    machines = (f"{machine.path}/now.json" for machine in scanned(f"{path}/{ARCHIVE}"))
    return tuple(map(_changed_ns, (*_paths(path, MANIFEST, ROWS_FILE, marks.FILE, ARCHIVE), *machines)))


def of_records(path: Path) -> Fingerprint:
    """Return when the directories and files of a run changed: a table's directory does when a file of it does."""
    machines = [machine.path for machine in scanned(f"{path}/{ARCHIVE}") if machine.is_dir()]
    tables = [table.path for machine in machines for table in scanned(machine) if table.is_dir()]
    return tuple(map(_changed_ns, (*_paths(path, MANIFEST, ROWS_FILE, FOLDER, ARCHIVE), *machines, *tables)))


def of_facts(path: Path, *, is_over: bool) -> Fingerprint:
    """Return when what facts are made of changed. Of a run that goes on, its agents write each second how far it is."""
    return (*of_records(path), *of_present(path)) if is_over else of_records(path)


def scanned(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder, in the order of the names; nothing if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _paths(path: Path, *names: str) -> list[str]:
    return [f"{path}/{name}" for name in names]


def _changed_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 - thousands, of texts
    except OSError:
        return 0
