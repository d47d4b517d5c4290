"""Atomic replacement of files, reading what was written that way, and the disk space that files use."""

from __future__ import annotations

import contextlib
import os
import secrets
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.modes import open_file
from otel_rl.recorder.files.own_files import ForeignError, read_own, read_shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

T = TypeVar("T")
_MOST_DIGITS = 18
_warnings = Occasional(log_of("otel_rl"))


def write_atomically(path: Path, content: bytes, mode: int | None = None, at: int | None = None) -> None:
    """Replace the file in one step, so that a reader sees either the old or the new content.

    Its mode is that of this process's files, or the one given. `at` is the descriptor of its directory; without it, the
    directory is found by the path.

    Raises:
        OSError: The file cannot be written. The error names `path`, not the temporary file.
    """
    with replacing(path, mode, at) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None, at: int | None = None) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of another one at the end, unless something is raised; as `write_atomically`.

    Raises:
        OSError: The file cannot be written. The error names `path`, not the temporary file.
    """
    with _fresh(path, mode, at) as (fresh, file):
        yield file
        # Closed before the rename: the last bytes are written here, and on a full disk the old file must stay
        # (faults/test_identity.py).
        file.close()
        # Without fsync, which waits for the disk, here also on the trainer's thread: power loss costs the last seconds.
        os.replace(fresh, path, src_dir_fd=at, dst_dir_fd=at)


def write_first(path: Path, content: bytes) -> bool:
    """Write a file that does not exist yet, in one step; return false if another process was faster.

    Without hard links, as on exFAT, a reader may see the file before its content.

    Raises:
        OSError: The file cannot be written. The error names `path`, not the temporary file.
    """
    with _fresh(path) as (fresh, file):
        file.write(content)
        file.close()
        try:
            os.link(fresh, path)
        except OSError:  # SFTP has no error for a file that exists, and the answer of NFS may have been lost
            if path.exists():
                return path.samefile(fresh)
        else:
            return True
    try:
        with open(path, "xb", opener=open_file) as plain:
            plain.write(content)
    except FileExistsError:
        return False
    except PermissionError:  # over sshfs, if another machine was faster
        if path.exists():
            return False
        raise
    return True


@contextlib.contextmanager
def _fresh(path: Path, mode: int | None = None, at: int | None = None) -> Iterator[tuple[Path, BinaryIO]]:
    """Make a temporary file next to `path`; remove it at the end if it is still there."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # a pid is not unique: containers count from 1
    try:
        fd = open_file(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode, at)
        with open(fd, "wb") as file:  # noqa: PTH123
            yield fresh, file
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise
    finally:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=at)


def read_json(path: Path, kind: type[T]) -> T | None:
    """Return the content of a JSON file; `None` if it is missing, damaged, of another type or another user's."""
    return _decoded(_own, path, kind)


def read_shown_json(path: Path, kind: type[T], below: Path) -> T | None:
    """Return the content of a JSON file that is only shown; `None` if it is missing, damaged or of another type.

    It is read only below a directory, such as that of its run, and not behind a link in there.
    """
    return _decoded(partial(read_shown, below=below), path, kind)


def _decoded(read: Callable[[Path], bytes], path: Path, kind: type[T]) -> T | None:
    with contextlib.suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(read(path), type=kind)
    return None


def _own(path: Path) -> bytes:
    try:
        return read_own(path)
    except ForeignError as error:
        _warnings.warn(str(error))
        raise


def read_line(path: Path) -> str:
    """Return the text of a file of one line; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_number(path: Path) -> int:
    """Return the number that is the text of a file; 0 if there is none."""
    return number_in(read_line(path)) or 0


def number_in(text: str) -> int | None:
    """Return the number that a text is; `None` if it is not one of at most 18 digits, which fit into 63 bits."""
    return int(text) if len(text) <= _MOST_DIGITS and text.isdecimal() else None


def disk_usage(path: Path) -> int:
    """Return the disk space of a directory tree in bytes; files that vanish during the walk count as 0."""
    size = 0
    for directory, directories, files in os.walk(path):  # unlike `rglob`, it tolerates directories that vanish
        for name in [*directories, *files]:
            with contextlib.suppress(OSError):
                size += os.stat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH116, PTH118
    return size
