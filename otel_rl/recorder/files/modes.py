"""The modes of what otel-rl creates: for its own user alone, unless the setting `share` says otherwise.

The umask does not decide. The umask of the trainer belongs to the user and to all threads, so it stays as it is, and
each file gets its mode where it is created. The agent, the bridge and the commands are processes of otel-rl: they set
their umask, which also covers what trackers write there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Modes(NamedTuple):
    """The modes of directories and of files."""

    directory: int
    file: int


PRIVATE, PUBLIC = Modes(0o700, 0o600), Modes(0o755, 0o644)
SHARED = {"none": PRIVATE, "group": Modes(0o750, 0o640), "all": PUBLIC}
"""The modes of what belongs to a run, by the setting `share`."""
TRAVERSED = 0o011
"""Added to the directory of all runs, because Prometheus runs as another user and reads the target files below it."""
_UMASK = 0o777


class _Chosen:
    modes = PRIVATE
    owns_process = False


def share_with(who: str) -> None:
    """Let this process create everything with the modes that the setting `share` asks for."""
    _Chosen.modes = SHARED[who]
    if _Chosen.owns_process:
        os.umask(_UMASK & ~_Chosen.modes.directory)


def own_process(who: str = "none") -> None:
    """Declare this process as otel-rl's own: its umask is set, whatever the user's is."""
    _Chosen.owns_process = True
    share_with(who)


def chosen() -> Modes:
    """Return the modes of what this process creates."""
    return _Chosen.modes


def make_directory(place: Path, mode: int | None = None) -> None:
    """Make a directory and its missing parents; if `place` is a dangling symbolic link, make its target.

    A directory that exists keeps its mode.

    Raises:
        OSError: The directory cannot be made.
    """
    try:
        real = place.resolve()
    except RuntimeError as error:  # Python before 3.13 does not raise OSError for links in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place)) from error
    missing = [real]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for part in reversed(missing):
        make_entry(part, chosen().directory if mode is None else mode)


def make_entry(place: Path, mode: int) -> None:
    """Make a directory in one that exists, unless there is one; a link is not followed.

    Raises:
        OSError: It cannot be made.
    """
    try:
        # Closed at first, whatever the umask and `mode` are: if the process is killed before `set_mode`, nobody else
        # can enter (security/test_private_files.py).
        place.mkdir(0o700)
    except (FileExistsError, PermissionError):  # over sshfs, the latter, if another machine was faster
        if not place.is_dir():
            raise
    else:
        set_mode(place, mode)


def set_mode(directory: Path, mode: int) -> None:
    """Set the mode of a directory of this user; it keeps the bit by which its group is inherited."""
    with contextlib.suppress(OSError):  # some file systems have no modes
        before = directory.lstat().st_mode
        if stat.S_ISDIR(before) and stat.S_IMODE(before) & 0o777 != mode:
            directory.chmod(stat.S_IMODE(before) & ~0o777 | mode)


def open_file(path: str | os.PathLike[str], flags: int, mode: int | None = None, at: int | None = None) -> int:
    """Open a file like `os.open`; if it is created, it has the mode of this process's files. An `opener` of `open`.

    `at` is the descriptor of the directory from which the path goes out.

    Raises:
        OSError: It cannot be opened.
    """
    flags |= os.O_CLOEXEC
    if not flags & os.O_CREAT:
        return os.open(path, flags, dir_fd=at)
    try:
        # Exclusive, to know whether it is new: a file that exists keeps its mode. A new one is closed until `fchmod`
        # (security/test_private_files.py).
        fd = os.open(path, flags | os.O_EXCL, 0o600, dir_fd=at)
    except (FileExistsError, PermissionError):  # over sshfs, the latter, if another machine was faster
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags, 0o600, dir_fd=at)
    with contextlib.suppress(OSError):  # some file systems have no modes
        os.fchmod(fd, chosen().file if mode is None else mode)
    return fd


def close_to_others(tree: Path) -> None:
    """Take from a tree, of an earlier version or changed from outside, what this process would not give to others."""
    for directory, directories, files in os.walk(tree, topdown=False):
        for name in (*directories, *files):
            _narrow(os.path.join(directory, name))  # noqa: PTH118 - of thousands of files
    _narrow(str(tree))


def _narrow(path: str) -> None:
    with contextlib.suppress(OSError):
        before = os.lstat(path).st_mode
        allowed = chosen().directory | stat.S_ISGID | stat.S_ISVTX
        if not stat.S_ISLNK(before) and (narrow := stat.S_IMODE(before) & (allowed | 0o700)) != stat.S_IMODE(before):
            os.chmod(path, narrow)  # noqa: PTH101
