"""The archive: everything that a run recorded, in Parquet files that every engine reads."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.archive.lines import fits
from otel_rl.export import Gone, Process, Refused
from otel_rl.setup.parts import ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo

_SAVE_EVERY_S = 10.0
_SAVED_ITEMS = 4000
"""Items after which a file is written at once; the agent gives no more while 4,096 are not durable."""


class ArchiveExporter:
    """Writes everything that a run records below `archive/` of the run directory, as Parquet.

    Young files are written every 10 s, or every 4,000 items; about 1,024 steps become a sealed file, which never
    changes. When the run ends, everything is sealed. [The archive](run-archive.md) describes the tables.

    Args:
        run: The run.
        limit: Size in bytes above which old spans are thinned.
    """

    batch_size = 512
    all_spans = True

    def __init__(self, run: RunInfo, limit: int = 4 << 30) -> None:
        from otel_rl.archive.writer import Writer  # arro3, in the agent alone: the trainer checks the options

        self._writer = Writer(Path(run.directory, ARCHIVE, run.machine or "local"), limit)
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
            Refused: An integer does not fit into a column.
        """
        self._save_if_due()
        for number, item in enumerate(items):
            if not fits(item):
                raise Refused(f"an integer of a {type(item).__name__} has more than 64 bits", done=number + 1, count=1)
            self._writer.add(item)
            self._is_awaited |= isinstance(item, Process) and item.ended_unix_nano is not None
            self._given += 1

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
        if is_full or self._is_awaited or time.monotonic() - self._saved_at >= _SAVE_EVERY_S:
            self._save(seals=False)

    def _save(self, *, seals: bool) -> None:
        if not self._writer.is_in_place():
            raise Gone("the archive was deleted")
        self._writer.save(seals=seals)
        self._saved, self._saved_at, self._is_awaited = self._given, time.monotonic(), False
