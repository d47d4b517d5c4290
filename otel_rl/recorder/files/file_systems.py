"""Properties of file systems: whether other machines share them, and whether locks and mappings work."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path

from otel_rl.recorder.files.atomic_files import write_first
from otel_rl.recorder.files.modes import PRIVATE, set_mode
from otel_rl.recorder.files.mounts import type_of

_LOCAL = frozenset(
    (
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs", "reiserfs", "nilfs2", "udf"),
        *("tmpfs", "ramfs", "devtmpfs", "overlay", "overlayfs", "aufs", "fuse.fuse-overlayfs", "fuse.unionfs"),
        *("vfat", "exfat", "ntfs", "ntfs3", "fuseblk", "hfs", "hfsplus", "apfs"),
    )
)
"""Types that only one machine mounts. All others count as shared, so that new network file systems do no harm."""
_PROBE = b"otel-rl"


def is_shared(path: Path) -> bool:
    """Return whether other machines may see the directory; false if the system does not say."""
    kind = type_of(path)
    return bool(kind) and kind not in _LOCAL


def what_fails(directory: Path) -> str:
    """Return what journals need and the file system of a directory does not support; empty if it supports everything.

    Tried are a lock of a directory against another open file, a mapping that a reader sees, and a rename over a file.

    Raises:
        OSError: The directory cannot be written.
    """
    import tempfile  # only the start of a run needs it

    with tempfile.TemporaryDirectory(prefix=".probe.", dir=directory, ignore_cleanup_errors=True) as probes:
        place = Path(probes)
        first, second = place / "1", place / "2"
        set_mode(place, PRIVATE.directory)  # whatever the umask
        write_first(first, bytes(mmap.PAGESIZE))
        write_first(second, b"")
        if not _locks_hold(place):
            return "locks of directories"
        if not _mappings_hold(first):
            return "shared mappings"
        with contextlib.suppress(OSError):
            first.replace(second)
            if second.stat().st_size == mmap.PAGESIZE:
                return ""
        return "a rename over a file"


def _locks_hold(place: Path) -> bool:
    """Return whether a lock excludes another open file; no other process uses the lock of this private directory."""
    descriptors: list[int] = []
    try:
        for _ in range(2):
            # Opened twice: `flock` locks of one process exclude each other only by different open files, as those of
            # two processes do.
            descriptors.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY))
            fcntl.flock(descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return len(descriptors) == 2
    # NFS makes a POSIX lock of `flock`, and an exclusive one needs a file that is open for writing
    # (docs/evidence/file-systems.md).
    except OSError:
        return False
    finally:
        for fd in descriptors:
            os.close(fd)
    return False


def _mappings_hold(file: Path) -> bool:
    try:
        with file.open("r+b") as opened, mmap.mmap(opened.fileno(), mmap.PAGESIZE) as mapping:
            mapping.write(_PROBE)
            return os.pread(opened.fileno(), len(_PROBE), 0) == _PROBE
    except (OSError, ValueError):
        return False
