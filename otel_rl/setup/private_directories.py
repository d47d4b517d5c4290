"""Directories of this machine that only this user can read and write, in places where everybody can make some.

Another user may have made a directory first, or a link to one of this user's directories. So each is examined each time
that it is used, as ssh and tmux do, and refused if it may be somebody else's.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from otel_rl.errors.occasional import Occasional
from otel_rl.errors.sinks import log_of
from otel_rl.journal.modes import PRIVATE, make_directory, set_mode
from otel_rl.journal.own_files import ForeignError, check_levels, check_own
from otel_rl.setup.file_systems import is_shared, what_fails

_warnings = Occasional(log_of("otel_rl"))
_LASTING = Path("/var/tmp")
"""A directory of this machine that outlives the job and a reboot, by the Filesystem Hierarchy Standard."""
MOST_NAMES = 100
"""Number of names that are tried, since other users, or machines with the same name, may have used some."""
_OTHERS = 0o077


def private_directory(base: Path | None = None, *, strict: bool = False) -> Path:
    """Create and return a directory that only this user can use, in `base` or the temporary directory.

    If another user made the first name, or can use it, a warning says so, and the next name is used.

    Raises:
        ForeignError: Another user made a level above it; or, with `strict`, the first name.
        OSError: There is no such directory that can be written.
    """
    import tempfile  # only the start of a run needs it

    usual = (base or Path(tempfile.gettempdir())) / f"otel-rl-{os.getuid()}"
    check_levels(usual.parent)
    for number in range(MOST_NAMES):
        place = usual.with_name(f"{usual.name}.{number}") if number else usual
        try:
            _make(place)
        except ForeignError as error:
            if strict:
                raise
            _warnings.warn(f"{error}; another directory is used instead")
        else:
            return place
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}.", dir=base))


def make_private(target: Path) -> None:
    """Create a directory for temporary data so that only this user can use it; leave other directories alone.

    It may be in the temporary directory of an earlier job.

    Raises:
        ForeignError: Another user made it, or can use it.
        OSError: It cannot be created.
    """
    import tempfile

    check_levels(target)
    temporary = {Path(tempfile.gettempdir()), _LASTING}
    own = re.compile(rf"otel-rl-{os.getuid()}(\..+)?")
    parts = [*reversed(target.parents), target]
    for number, part in enumerate(parts):
        if any(own.fullmatch(one.name) for one in parts[: number + 1]):
            _make(part)
        elif temporary & {*part.parents}:
            make_directory(part)
            check_own(part)


def home(chosen: str = "", *, strict: bool = False) -> Path | None:
    """Return a private directory of this machine where locks and mappings work; `None` if there is none.

    Raises:
        ForeignError: Another user made the directory that would be used, and the run is strict.
    """
    import tempfile

    bases = [Path(chosen).absolute()] if chosen else []
    for base in (*bases, _LASTING, Path(tempfile.gettempdir())):
        try:
            if chosen and base == bases[0]:
                make_directory(base)
            elif is_shared(base):
                continue
            private = private_directory(base, strict=strict)
            if not what_fails(private):
                return private
        except ForeignError as error:
            if strict:
                raise
            _warnings.warn(str(error))
        except OSError:
            continue
    return None


def _make(place: Path) -> None:
    """Create a private directory unless it exists.

    Raises:
        ForeignError: It exists, and may be another user's.
        OSError: It cannot be created.
    """
    try:
        place.mkdir(mode=PRIVATE.directory)
    except FileExistsError:
        check_own(place)
        if (mode := stat.S_IMODE(place.lstat().st_mode)) & _OTHERS:
            raise ForeignError(
                f"other users can read {place} (mode {mode:04o}): run chmod 700 {place}", place
            ) from None
    except FileNotFoundError:
        make_directory(place, PRIVATE.directory)
    else:
        set_mode(place, PRIVATE.directory)  # whatever the umask
