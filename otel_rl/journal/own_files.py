"""Files and directories that nobody but this user can have written.

The files that the agent reads decide which code it imports, so it trusts those of its own user only. Some file systems
give every file the same owner or mode. There, a file belongs to this user if a new file gets the same owner.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

_OTHERS_WRITE, _EVERYBODY_WRITES = 0o022, 0o002


class ForeignError(PermissionError):
    """Another user made it, or can write it."""

    def __init__(self, why: str, path: Path) -> None:
        super().__init__(errno.EACCES, why, str(path))

    def __str__(self) -> str:
        return str(self.strerror)


def read_own(path: Path) -> bytes:
    """Return the content of a file that nobody but this user can have written.

    Raises:
        ForeignError: Another user made it, or can write it.
        OSError: It cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # no pipe may hold this up
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if why := _why_foreign(found, path, path.parent):
            raise ForeignError(f"{why}; it is not read", path)
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def read_found(path: Path) -> bytes:
    """Return the content of a file that nobody named, so that another user may have put it there.

    It belongs to this user or to root, as does a link to it. Members of its group may write it.

    Raises:
        ForeignError: Another user made it, or everybody can write it.
        OSError: It cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:  # noqa: PTH123
        found = os.fstat(fd)
        for one in (path.lstat(), found):
            if one.st_uid != 0 and not _is_own(one, path.parent):
                raise ForeignError(f"{path} belongs to {user(one.st_uid)}, not to {user(os.geteuid())}", path)
        if found.st_mode & _EVERYBODY_WRITES and not ((kept := _kept(path.parent)) and kept.mode & _EVERYBODY_WRITES):
            raise ForeignError(f"every user can write {path}", path)
        return file.read()


def check_own(directory: Path) -> None:
    """Check a directory that exists.

    Raises:
        ForeignError: It is a link, another user made it, or others can write it.
        OSError: It cannot be examined.
    """
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ForeignError(f"{directory} is not a directory: remove it", directory)
    if why := _why_foreign(found, directory, directory):
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
    for level in dict.fromkeys(one for whole in (path.absolute(), real) for one in (whole, *whole.parents)):
        try:
            found = level.lstat()
        except FileNotFoundError:
            continue
        is_open = level.parent.stat().st_mode & _EVERYBODY_WRITES
        if is_open and found.st_uid != 0 and not _is_own(found, level.parent):
            raise ForeignError(
                f"{level} belongs to {user(found.st_uid)}, in a directory that everybody can write: choose a directory "
                "that only you can write",
                level,
            )


def user(uid: int) -> str:
    """Return the name of a user, or the number if there is none."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


class _Kept(NamedTuple):
    uid: int
    mode: int


def _why_foreign(found: os.stat_result, path: Path, directory: Path) -> str:
    """Return why this user cannot be the only one who wrote it; empty if it is."""
    if found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE:
        return ""
    kept = _kept(directory)
    if found.st_uid != os.geteuid() and (kept is None or kept.uid != found.st_uid):
        return (
            f"{path} belongs to {user(found.st_uid)}, not to {user(os.geteuid())}: remove it, or run this as its owner"
        )
    if found.st_mode & _OTHERS_WRITE & ~(kept.mode if kept is not None else 0):
        return f"other users can write {path}: look at what is in it, then run chmod -R go-w {path}"
    return ""


def _is_own(found: os.stat_result, directory: Path) -> bool:
    kept = None if found.st_uid == os.geteuid() else _kept(directory)
    return found.st_uid == (os.geteuid() if kept is None else kept.uid)


def _kept(directory: Path) -> _Kept | None:
    """Return the owner and the mode of a new private file in a directory; `None` if none can be made."""
    probe = directory / f".owner.{secrets.token_hex(8)}"
    with contextlib.suppress(OSError):
        fd = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            found = os.fstat(fd)
            return _Kept(found.st_uid, stat.S_IMODE(found.st_mode))
        finally:
            os.close(fd)
            probe.unlink()
    return None
