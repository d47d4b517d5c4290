"""Snapshots of the process's memory, fast enough for both ends of every phase."""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from typing import NamedTuple

from otel_rl.recorder.files.descriptors import KeptDescriptor, kept, raised
from otel_rl.recorder.journal.records import SNAPSHOT_BYTES

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_RECENT_NS = 20_000


class ProcessMemory(NamedTuple):
    """Bytes of the process: resident (RSS) and virtual (VMS)."""

    resident: int
    virtual: int


class MemoryReader:
    """A reader of raw snapshots, which `parse_snapshot` parses in another process.

    Parsing would cost the trainer more than the snapshot itself. Without /proc, snapshots are empty.
    """

    def __init__(self) -> None:
        self._last = b""
        self._last_at = 0
        self._open()

    def _open(self) -> None:
        self._file: KeptDescriptor | None = None
        with contextlib.suppress(OSError):  # no /proc, or no descriptor is left
            self._file = kept(raised(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)))
        self._fd = -1 if self._file is None else self._file.number

    def snapshot(self, now: int) -> bytes:
        """Return a raw snapshot, empty if there is none; `now` is in nanoseconds."""
        try:
            # `pread`: the position of a descriptor is one for all threads, and each snapshot begins at 0.
            raw = os.pread(self._fd, 128, 0)
        except OSError:
            return b""
        if raw.translate(None, SNAPSHOT_BYTES):  # the number is that of a file of the trainer
            return b""
        self._last = raw
        self._last_at = now
        return raw

    def recent(self, now: int) -> bytes:
        """Return the last snapshot if it is at most 20 µs old, else a new one.

        A phase often starts when another one ends; then one snapshot serves both.
        """
        return self._last if 0 <= now - self._last_at <= _RECENT_NS else self.snapshot(now)

    def keep(self) -> None:
        """Open the source again if the trainer has closed it, since its number may be that of another file."""
        if self._file is not None and not self._file.is_same:
            self._open()

    def close(self) -> None:
        """Release the file descriptor."""
        self._fd = -1
        file, self._file = self._file, None
        if file is not None:
            file.close()


@lru_cache(maxsize=256)  # one phase often ends where the next one starts
def parse_snapshot(raw: bytes, page_size: int) -> ProcessMemory | None:
    """Return the sizes in a snapshot, or `None` if it is empty.

    The source is `/proc/<pid>/statm`: virtual and resident size in pages (proc_pid_statm(5)).
    """
    fields = raw.split()
    if len(fields) < 2:
        return None
    return ProcessMemory(resident=int(fields[1]) * page_size, virtual=int(fields[0]) * page_size)
