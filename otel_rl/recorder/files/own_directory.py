"""Directories of this user in places where other users can make some too.

Another user may have made the directory first, or a link to one of this user's directories. So it is opened once,
without following a link, examined as it was opened, and used by its descriptor: whatever is at its path later.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import make_directory, make_entry
from otel_rl.recorder.files.own_files import check_levels, check_own

_OTHERS = 0o077


class OwnDirectory:
    """A directory that only this user can change, held open until the end of a `with` block.

    Args:
        path: Where it is.
        mode: Its mode if it is made. One that exists must give others nothing that this mode does not.
        makes: If false, it must exist.
        closes: If true, others lose what the mode does not give them; otherwise the directory is refused then.

    Raises:
        ForeignError: Another user made it or a level above it, can use it, or it is a link.
        OSError: It cannot be made or opened.
    """

    def __init__(self, path: Path, mode: int, *, makes: bool = True, closes: bool = False) -> None:
        check_levels(path.parent)
        if makes:
            make_directory(path.parent, mode)
            with contextlib.suppress(FileExistsError):
                make_entry(path, mode)
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            check_own(path)  # says why
            raise
        try:
            status = os.fstat(self.fd)
            if closes and status.st_uid == os.geteuid() and status.st_mode & _OTHERS & ~mode:
                with contextlib.suppress(OSError):  # some file systems have no modes
                    os.fchmod(self.fd, mode)
            check_own(path, self.fd, private=not mode & _OTHERS)
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self) -> OwnDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def names(self) -> list[str]:
        """Return the names of what is in it."""
        return os.listdir(self.fd)  # noqa: PTH208

    def write(self, name: str, content: bytes, mode: int | None = None) -> None:
        """Replace a file in one step.

        Raises:
            OSError: It cannot be written.
        """
        write_atomically(Path(name), content, mode, self.fd)

    def changed(self, name: str) -> float:
        """Return when a file was changed, in seconds since 1970.

        Raises:
            OSError: There is none.
        """
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mtime

    def touch(self, name: str) -> None:
        """Set the time of a file to the present.

        Raises:
            OSError: There is none.
        """
        os.utime(name, dir_fd=self.fd, follow_symlinks=False)

    def remove(self, name: str) -> None:
        """Remove a file.

        Raises:
            OSError: It cannot be removed.
        """
        os.unlink(name, dir_fd=self.fd)
