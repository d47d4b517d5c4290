"""Files that are read: those that nobody but this user can have written, and those of anybody.

The files that the agent reads decide which code it imports, so it trusts those of its own user only. Some file systems
give every file the same owner or mode. There, a file belongs to this user if a new file gets the same owner.

Of anybody, only regular files are opened, and so much is read that it fits into memory: a pipe would wait for a writer,
and a device may never end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.files.mounts import type_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_OTHERS, _OTHERS_WRITE, _EVERYBODY_WRITES = 0o077, 0o022, 0o002
_MOST_BYTES, _MOST_SHOWN_BYTES = 64 << 20, 16 << 20
"""Bytes of a file that is read at once: of this user, and of anybody. JSON takes up to ten times as much memory."""
_WITH_OWNERS = frozenset(
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "overlay"]
)
"""File systems on which a new file belongs to the user who makes it, with the mode that he gives it."""


class ForeignError(PermissionError):
    """Another user made it, or can write it."""

    def __init__(self, why: str, path: Path) -> None:
        super().__init__(errno.EACCES, why, str(path))

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: Path, *, links: bool = True, below: Path | None = None) -> BinaryIO:
    """Open a file for reading, unless it is something else than a file.

    Args:
        path: Where it is.
        links: If true, a link is followed.
        below: The directory of somebody else in which it must be: no link is followed on the way from there.

    Raises:
        ForeignError: It is a pipe, a device, a socket, or a link that is not followed.
        OSError: It cannot be opened.
    """
    if below is None:
        return _opened(path, path, None, links=links)
    with _parent(path, below) as at:
        return _opened(path, path.name, at, links=False)


@contextlib.contextmanager
def _parent(path: Path, below: Path) -> Iterator[int]:
    """Yield the directory of a file, each of whose components below another one was opened without following a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    at = os.open(below, flags)
    try:
        for part in path.relative_to(below).parts[:-1]:
            if part == os.pardir:
                raise ForeignError(f"{path} leads out of {below}", path)
            try:
                opened = os.open(part, flags | os.O_NOFOLLOW, dir_fd=at)
            except NotADirectoryError:  # Linux's error for a link, too
                raise ForeignError(f"{part} in {path} is a link, or no directory; it is not followed", path) from None
            os.close(at)
            at = opened
        yield at
    finally:
        os.close(at)


def _opened(path: Path, name: Path | str, at: int | None, *, links: bool) -> BinaryIO:
    # Before it is opened: opening a device can act on it.
    _check_regular(os.stat(name, dir_fd=at, follow_symlinks=links), path)
    # O_NONBLOCK and the second check: a pipe may have taken the place of the file since the first one
    # (security/test_tokens.py).
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    file = open(os.open(name, flags, dir_fd=at), "rb")  # noqa: PTH123, SIM115
    try:
        _check_regular(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


def read_own(path: Path) -> bytes:
    """Return the content of a file that nobody but this user can have written.

    Raises:
        ForeignError: Another user made it, or can write it.
        OSError: It cannot be read.
    """
    with open_regular(path, links=False) as file:
        if why := _why_foreign(os.fstat(file.fileno()), path, path.parent):
            raise ForeignError(f"{why}; it is not read", path)
        return _content(file, path, _MOST_BYTES)


def read_found(path: Path) -> bytes:
    """Return the content of a file that nobody named, so that another user may have put it there.

    It belongs to this user or to root, as does a link to it. Members of its group may write it.

    Raises:
        ForeignError: Another user made it, or everybody can write it.
        OSError: It cannot be read.
    """
    with open_regular(path) as file:
        opened = os.fstat(file.fileno())
        for status in (path.lstat(), opened):
            if status.st_uid != 0 and not _is_own(status, path.parent):
                raise ForeignError(f"{path} belongs to {user(status.st_uid)}, not to {user(os.geteuid())}", path)
        # On some file systems everybody can write every file, whatever its mode was: then this one is like a new one.
        new_file = _new_file_in(path.parent) if opened.st_mode & _EVERYBODY_WRITES else None
        if opened.st_mode & _EVERYBODY_WRITES and not (new_file and new_file.mode & _EVERYBODY_WRITES):
            raise ForeignError(f"every user can write {path}", path)
        return _content(file, path, _MOST_BYTES)


def read_shown(path: Path, below: Path | None = None, most: int = _MOST_SHOWN_BYTES) -> bytes:
    """Return the content of a file that is only shown, so that anybody may have written it.

    Args:
        path: Where it is.
        below: The directory, such as that of a run, in which it must be, and not behind a link in there.
        most: The largest number of bytes.

    Raises:
        OSError: It cannot be read, is not a regular file, or is too large.
    """
    with open_regular(path, below=below) as file:
        return _content(file, path, most)


def _check_regular(status: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise ForeignError(f"{path} is not a regular file", path)


def _content(file: BinaryIO, path: Path, most: int) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return content


def check_own(directory: Path, fd: int | None = None, *, private: bool = False) -> None:
    """Check a directory that exists, or the one that is open at `fd`; a `private` one cannot be read by others either.

    Raises:
        ForeignError: It is a link, another user made it, or others can write it.
        OSError: It cannot be examined.
    """
    status = directory.lstat() if fd is None else os.fstat(fd)
    if not stat.S_ISDIR(status.st_mode):
        raise ForeignError(f"{directory} is not a directory: remove it", directory)
    if why := _why_foreign(status, directory, directory, private=private):
        raise ForeignError(why, directory)


def is_own(path: Path) -> bool:
    """Return whether a file or a directory, or what a link points to, belongs to this user."""
    return _is_own(path.stat(), path if path.is_dir() else path.parent)


def check_levels(path: Path) -> None:
    """Check each existing level of a path, and of its symbolic links, that other users could have made.

    Others can make entries of a directory that everybody can write, such as `/tmp`.

    Raises:
        ForeignError: Another user made a level.
        OSError: A level cannot be examined.
    """
    real = Path(os.path.realpath(path))  # unlike `resolve`, it does not raise for links in a circle
    for level in dict.fromkeys(level for whole in (path.absolute(), real) for level in (whole, *whole.parents)):
        try:
            status = level.lstat()
        except FileNotFoundError:
            continue
        is_open = level.parent.stat().st_mode & _EVERYBODY_WRITES
        if is_open and status.st_uid != 0 and not _is_own(status, level.parent):
            raise ForeignError(
                f"{level} belongs to {user(status.st_uid)}, in a directory that everybody can write: "
                "choose a directory that only you can write",
                level,
            )


def check_place(directory: Path) -> None:
    """Check that no other user can replace what this user has in a directory.

    Raises:
        ForeignError: Another user can.
        OSError: It cannot be examined.
    """
    status = directory.stat()
    if status.st_uid != 0 and not _is_own(status, directory):
        raise ForeignError(f"{directory} belongs to {user(status.st_uid)}, who can replace what is in it", directory)
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise ForeignError(f"other users can replace what is in {directory}: run chmod +t {directory}", directory)


def user(uid: int) -> str:
    """Return the name of a user, or the number if there is none."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


class _NewFile(NamedTuple):
    uid: int
    mode: int


def _why_foreign(status: os.stat_result, path: Path, directory: Path, *, private: bool = False) -> str:
    """Return why this user cannot be the only one who wrote it, or who can read it if it is private; empty if it is."""
    refused = status.st_mode & (_OTHERS if private else _OTHERS_WRITE)
    if status.st_uid == os.geteuid() and not refused:
        return ""
    new_file = _new_file_in(directory)
    if status.st_uid != os.geteuid() and (new_file is None or new_file.uid != status.st_uid):
        return (
            f"{path} belongs to {user(status.st_uid)}, not to {user(os.geteuid())}: remove it, or run this as its owner"
        )
    refused &= ~(new_file.mode if new_file is not None else 0)
    if refused & _OTHERS_WRITE:
        return f"other users can write {path}: look at what is in it, then run chmod -R go-w {path}"
    if refused:
        return f"other users can read {path} (mode {stat.S_IMODE(status.st_mode):04o}): run chmod 700 {path}"
    return ""


def _is_own(status: os.stat_result, directory: Path) -> bool:
    new_file = None if status.st_uid == os.geteuid() else _new_file_in(directory)
    return status.st_uid == (os.geteuid() if new_file is None else new_file.uid)


def _new_file_in(directory: Path) -> _NewFile | None:
    """Return the owner and the mode of a new private file in a directory; `None` if none can be made.

    One is made only on a file system whose files may all have one owner: nothing is written into what is somebody's.
    """
    if type_of(directory) in _WITH_OWNERS:
        return _NewFile(os.geteuid(), 0o600)
    probe = directory / f".owner.{secrets.token_hex(8)}"
    with contextlib.suppress(OSError):
        fd = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            status = os.fstat(fd)
            return _NewFile(status.st_uid, stat.S_IMODE(status.st_mode))
        finally:
            os.close(fd)
            probe.unlink()
    return None
