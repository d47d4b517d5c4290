"""`otel-rl rm`: a run directory is deleted whole, and nothing that a link in it leads to."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.runs import MANIFEST, place_of
from otel_rl.recorder.directory.directory import ATTEMPTS, here
from otel_rl.recorder.directory.parts import ARCHIVE, LOCAL, is_at_work
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.states import goes_on
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.files.modes import PUBLIC
from otel_rl.recorder.files.mounts import mounts_below
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.own_files import ForeignError, check_own, read_own, user

_BLOCK = 512
_MOST_ENTRIES = 6
"""Entries of a directory that are named when somebody is asked whether to delete it."""


class RefusedError(ValueError):
    """A run that is not deleted."""


class RunContent(NamedTuple):
    """The content of a run directory that can be deleted."""

    path: Path  # the directory
    title: str  # project and name of the run
    entries: tuple[tuple[str, int], ...]  # the names in it and their disk space in bytes, the largest first
    undelivered: tuple[tuple[str, int], ...]  # exporters that lack items, and how many

    @property
    def size(self) -> int:
        """Its disk space in bytes."""
        return sum(size for _, size in self.entries)

    @property
    def described(self) -> str:
        """Its size, its largest entries, and which exporters have not got everything, in words."""
        entries = [f"{name} {wording.memory(size)}" for name, size in self.entries[:_MOST_ENTRIES]]
        if more := len(self.entries) - len(entries):
            entries.append(f"{more} more")
        lacks = [f"{name} lacks {wording.count(count, 'item')} of it" for name, count in self.undelivered]
        return "; ".join((f"{wording.memory(self.size)}: {', '.join(entries)}", *lacks))


class _Identity(msgspec.Struct):
    """The fields of `run.json` that otel-rl always writes."""

    id: str
    project: str
    name: str


def content_of(run: Path) -> RunContent:
    """Return the content of a run directory.

    Raises:
        RefusedError: It is a link, not a run directory of otel-rl, or in use.
        ForeignError: Another user made it, or something in it, or can write it.
        OSError: It cannot be read.
    """
    path = _checked(run)
    if goes_on((present := present_of(place_of(path))).state):
        raise RefusedError(f"{path} is {present.state}: end the run first")
    for part in here(path):
        if is_at_work(part.local):
            raise RefusedError(f"{path} is in use by a trainer or an agent on this machine: wait until it has ended")
    if mounted := mounts_below(path):
        raise RefusedError(f"another file system is mounted at {mounted[0]}")
    status = path.lstat()
    sizes = [(entry.name, _size(entry.path, status)) for entry in os.scandir(path)]
    undelivered = [(exporter.name, exporter.waiting) for exporter in present.exporters if exporter.waiting]
    return RunContent(path, present.title, tuple(sorted(sizes, key=lambda known: -known[1])), tuple(undelivered))


def remove(run: Path) -> RunContent:
    """Delete a run directory; return what was in it. It raises as `content_of` does.

    Files that are open elsewhere, and those of a machine that has its part outside of the directory, stay.
    """
    content = content_of(run)
    with ExitStack() as stack:
        for part in here(content.path):  # no agent starts meanwhile
            if part.agent_lock.is_dir():
                stack.enter_context(Lock(part.agent_lock, patience=0))
        with OwnDirectory(content.path, PUBLIC.directory, makes=False) as directory:
            # The manifest goes last: if this is interrupted, the rest is still a run, which can be deleted.
            for name in sorted(directory.names(), key=lambda name: name == MANIFEST):
                if stat.S_ISDIR(os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mode):
                    shutil.rmtree(name, dir_fd=directory.fd)
                else:
                    directory.remove(name)
        content.path.rmdir()
    return content


def _checked(run: Path) -> Path:
    """Return the path of a run directory of this user that otel-rl made."""
    if run.is_symlink():
        raise RefusedError(f"{run} is a link: name the directory to which it leads")
    path = run.resolve()
    check_own(path)
    try:
        msgspec.json.decode(read_own(path / MANIFEST), type=_Identity)
    except (FileNotFoundError, *UNDECODABLE):
        raise RefusedError(f"{path} is not a run directory: it has no {MANIFEST} of otel-rl") from None
    if not any((path / name).exists() for name in (ATTEMPTS, ARCHIVE, LOCAL)):
        raise RefusedError(f"{path} is not a run directory: it has nothing that was recorded")
    return path


def _size(path: str, run: os.stat_result) -> int:
    """Return the disk space of a tree.

    Raises:
        ForeignError: Another user made something in it.
    """
    status = os.lstat(path)
    if status.st_uid != run.st_uid:
        raise ForeignError(f"{path} belongs to {user(status.st_uid)}", Path(path))
    size = status.st_blocks * _BLOCK
    return size + sum(_size(entry.path, run) for entry in os.scandir(path)) if stat.S_ISDIR(status.st_mode) else size
