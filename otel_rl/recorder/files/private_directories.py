"""Directories of this machine that only this user can read and write, in places where everybody can make some.

Another user may have made a directory first, or a link to one of this user's directories. So each is examined each time
that it is used, as ssh and tmux do, and refused if it may be somebody else's.
"""

from __future__ import annotations

import os
from pathlib import Path

from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.file_systems import is_shared, what_fails
from otel_rl.recorder.files.modes import PRIVATE, make_directory
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.own_files import ForeignError, check_levels

_warnings = Occasional(log_of("otel_rl"))
_LASTING = Path("/var/tmp")
"""A directory of this machine that outlives the job and a reboot, by the Filesystem Hierarchy Standard."""


def private_directory(base: Path | None = None) -> Path:
    """Create and return the directory of this user in `base` or the temporary directory.

    Raises:
        ForeignError: Another user made it or a level above it, or can use it.
        OSError: It cannot be created.
    """
    import tempfile  # only the start of a run needs it

    place = (base or Path(tempfile.gettempdir())) / _name()
    make_private(place)
    return place


def make_private(target: Path) -> None:
    """Create a directory of this user, or one below it, with mode 0700; leave other directories alone.

    Raises:
        ForeignError: Another user made it or a level above it, or can use it.
        OSError: It cannot be created.
    """
    levels = [*reversed(target.parents), target]
    names = [level.name for level in levels]
    own = levels[names.index(_name()) :] if _name() in names else []
    check_levels(own[0].parent if own else target)
    for level in own:
        with OwnDirectory(level, PRIVATE.directory):
            pass


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
            private = private_directory(base)
            if not what_fails(private):
                return private
        except ForeignError as error:
            if strict:
                raise
            _warnings.warn(f"{error}; another directory is used instead")
        except OSError:
            continue
    return None


def _name() -> str:
    return f"otel-rl-{os.getuid()}"
