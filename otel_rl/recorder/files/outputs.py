"""The one door through which verbs write what they make of a run.

A run directory can be somebody else's, or a copy with links that lead to files of this user. So a verb writes into it
only if it is this user's own, and never through a link in it. A place that the user names is taken as it is. Each file
is written under a new name, and then takes the place of the old one.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.recorder.files.modes import PUBLIC
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.own_files import ForeignError, check_own

if TYPE_CHECKING:
    from collections.abc import Iterator


def place_for(run: Path, name: str) -> Path:
    """Return where a verb writes a file or a folder of a run without `-o`: in the run directory if it is this user's.

    Otherwise it is in the working directory.

    Raises:
        ForeignError: There is a link at the place.
    """
    try:
        check_own(run.resolve())
    except OSError:
        run = Path()
    place = (run if os.access(run, os.W_OK) else Path()).absolute() / name
    if place.is_symlink():
        raise ForeignError(
            f"{place} is a link, through which nothing is written: remove it, or give another: -o", place
        )
    return place


def write_into(run: Path, name: str, content: bytes) -> None:
    """Replace a file in a run directory of this user in one step; those read it who can read the directory.

    Raises:
        ForeignError: Another user made the directory or can write it, or there is a link at the place.
        OSError: It cannot be written.
    """
    with OwnDirectory(run.resolve(), PUBLIC.directory, makes=False) as directory:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mode):
                raise ForeignError(f"{run / name} is a link, or no file: remove it", run / name)
        directory.write(name, content, os.fstat(directory.fd).st_mode & 0o666)


def check_target(run: Path, *, apart: frozenset[str]) -> None:
    """Check that other programs may write into a run directory: it is this user's, and has no pipe or link elsewhere.

    Args:
        run: The run directory.
        apart: Folders in it that they do not write.

    Raises:
        ForeignError: Another user made it or can write it, or a link in it leads elsewhere.
        OSError: It cannot be examined.
    """
    root = run.resolve()
    check_own(root)
    for folder, folders, files in os.walk(run):
        folders[:] = [name for name in folders if folder != str(run) or name not in apart]
        for name in (*folders, *files):
            path = Path(folder, name)
            try:
                kind = path.lstat().st_mode
            except FileNotFoundError:  # an agent replaces its files
                continue
            if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                raise ForeignError(f"{path} is a pipe or a device, into which nothing is written: remove it", path)
            if stat.S_ISLNK(kind) and not _leads_into(root, path) and not _is_of_wandb(run, path):
                raise ForeignError(f"{path} is a link that leads elsewhere, through which nothing is written", path)


def _is_of_wandb(run: Path, link: Path) -> bool:
    """Return whether a link is one that W&B leaves, to the log of its service; the next run has a folder of its own."""
    folder, _, *inner = (*link.relative_to(run).parts, "", "")
    return folder == "wandb" and inner[:2] == ["logs", "debug-core.log"]


def _leads_into(root: Path, link: Path) -> bool:
    with contextlib.suppress(OSError, RuntimeError):  # a circle of links
        return link.resolve().is_relative_to(root)
    return False


@contextlib.contextmanager
def draft_of(file: Path) -> Iterator[Path]:
    """Yield a path for a program that writes a file itself; at the end it takes the place of the file.

    Raises:
        OSError: The file cannot be written.
    """
    # A new folder: at a name that can be guessed, there may be a link.
    with tempfile.TemporaryDirectory(prefix=".otel-rl.", dir=file.parent) as folder:
        draft = Path(folder, file.name)
        yield draft
        draft.replace(file)


def emptied(file: Path, most: int) -> int:
    """Return the size of a file that others append to; one of this user above `most` bytes is emptied before."""
    status = file.lstat()
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
    if status.st_size <= most or not is_own:
        return status.st_size
    fd = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.path.samestat(status, os.fstat(fd)):
            os.ftruncate(fd, 0)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)
