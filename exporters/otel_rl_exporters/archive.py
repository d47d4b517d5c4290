"""The archive: everything that a run recorded, in Parquet files that every engine reads."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.export import Gone, Process, Refused
from otel_rl.recorder.archive.lines import fit
from otel_rl.recorder.directory.parts import ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo

_SAVE_EVERY_S, _SAVE_WATCHED_EVERY_S = 10.0, 1.0
"""Seconds between saves, and while somebody looks at the run."""
_SAVED_ITEMS = 4000
"""Items after which a file is written at once; the agent gives no more while 4,096 are not durable."""


class ArchiveExporter:
    """Writes everything that a run records below `archive/` of the run directory, as Parquet.

    Young files are written every 10 s, every second while somebody looks at the run, or every 4,000 items; about 1,024
    steps become a sealed file, which never changes. When the run ends, everything is sealed.
    [The archive](run-archive.md) describes the tables.

    Args:
        run: The run.
        limit: Size in bytes above which old spans are thinned.
    """

    batch_size = 512
    everything = True

    def __init__(self, run: RunInfo, limit: int = 4 << 30) -> None:
        from otel_rl.recorder.archive.lease import SeenLease
        from otel_rl.recorder.archive.writer import ArchiveWriter  # arro3
        from otel_rl.recorder.files import freed_memory  # in the agent alone: the trainer checks the options

        freed_memory.lend_large_blocks()
        self._give_back = freed_memory.give_back
        self._writer = ArchiveWriter(Path(run.directory, ARCHIVE, run.machine or "local"), limit)
        self._lease = SeenLease(Path(run.directory))
        self._given = self._saved = 0
        self._saved_at = time.monotonic()
        self._is_awaited = False

    def holds(self, item: Item) -> bool:
        """Return whether the archive had the item when the exporter was built."""
        return self._writer.holds(item)

    def export(self, items: Sequence[Item]) -> None:
        """Keep the items for the next file.

        Raises:
            Gone: The archive was deleted.
            OSError: A file cannot be written now.
            Refused: An integer is out of the range that readers accept.
        """
        self._save_if_due()
        refused, taken = None, _by_kind(items)
        if not all(map(fit, taken)):
            refused = next(number for number, item in enumerate(items) if not fit([item]))
            taken = _by_kind(items[:refused])
        for of_kind in taken:
            self._writer.add(*of_kind)
            self._is_awaited |= isinstance(of_kind[0], Process) and any(map(_has_ended, of_kind))
        self._given += sum(map(len, taken))
        if refused is not None:
            kind = type(items[refused]).__name__
            raise Refused(f"an integer of a {kind} is out of range", done=refused + 1, count=1)

    def durable(self) -> int:
        """Return the number of items that are in files.

        Raises:
            Gone: The archive was deleted.
            OSError: A file cannot be written now.
        """
        self._save_if_due()
        return self._saved

    def shutdown(self) -> None:
        """Seal everything.

        Raises:
            Gone: The archive was deleted.
            OSError: A file cannot be written now.
        """
        self._save(seals=True)

    def _save_if_due(self) -> None:
        """Save from time to time, and when a process has ended: its `finish` waits for that."""
        is_full = self._given - self._saved >= _SAVED_ITEMS
        age = time.monotonic() - self._saved_at
        is_old = age >= _SAVE_EVERY_S or (age >= _SAVE_WATCHED_EVERY_S and self._lease.is_held())
        if is_full or self._is_awaited or is_old:
            self._save(seals=False)

    def _save(self, *, seals: bool) -> None:
        if not self._writer.is_in_place():
            raise Gone("the archive was deleted")
        if self._writer.save(seals=seals):
            self._give_back()
        self._saved, self._saved_at, self._is_awaited = self._given, time.monotonic(), False


def _by_kind(items: Sequence[Item]) -> list[list[Item]]:
    """Return items by their type, those of one type in their order."""
    by_kind: defaultdict[type[Item], list[Item]] = defaultdict(list)
    for item in items:
        by_kind[type(item)].append(item)
    return [*by_kind.values()]


def _has_ended(item: Item) -> bool:
    return isinstance(item, Process) and item.ended_unix_nano is not None
