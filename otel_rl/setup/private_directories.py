"""Directories of this machine that only this user can write."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

from otel_rl.setup.file_systems import is_shared, what_fails

_LASTING = Path("/var/tmp")
"""A directory of this machine that outlives the job and a reboot, by the Filesystem Hierarchy Standard."""
MOST_NAMES = 100
"""Number of names that are tried, since other users, or machines with the same name, may have used some."""


def private_directory(base: Path | None = None) -> Path:
    """Create and return a directory that only this user can write, in `base` or the temporary directory.

    Another user may have made the first name, or may be able to write it; then the next name is used.

    Raises:
        OSError: There is no such directory that can be written.
    """
    import tempfile  # only the start of a run needs it

    usual = (base or Path(tempfile.gettempdir())) / f"otel-rl-{os.getuid()}"
    for number in range(MOST_NAMES):
        place = usual.with_name(f"{usual.name}.{number}") if number else usual
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
        if _is_private(place):
            return place
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}.", dir=base))


def make_private(target: Path) -> None:
    """Create a directory for temporary data so that only this user can write it; leave other directories alone.

    It may be in the temporary directory of an earlier job.

    Raises:
        PermissionError: Another user made it, or can write it.
    """
    import tempfile

    temporary = {Path(tempfile.gettempdir()), _LASTING}
    own = re.compile(rf"otel-rl-{os.getuid()}(\..+)?")
    parts = [*reversed(target.parents), target]
    for number, part in enumerate(parts):
        above = temporary & {*part.parents}
        if not above and not any(own.fullmatch(one.name) for one in parts[: number + 1]):
            continue
        with contextlib.suppress(FileExistsError):
            part.mkdir(mode=0o700, parents=True)
        if not _is_private(part):
            raise PermissionError(errno.EACCES, f"other users can write {part}", str(part))


def home(chosen: str = "") -> Path | None:
    """Return a private directory of this machine where locks and mappings work; `None` if there is none."""
    import tempfile

    bases = [Path(chosen).absolute()] if chosen else []
    for base in (*bases, _LASTING, Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            if chosen and base == bases[0]:
                base.mkdir(parents=True, exist_ok=True)
            elif is_shared(base):
                continue
            private = private_directory(base)
            if not what_fails(private):
                return private
    return None


def _is_private(place: Path) -> bool:
    """Return whether this is a directory, not a link, that belongs to this user and that only this user can write."""
    found = place.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
