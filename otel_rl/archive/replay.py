"""The items of an archive in the order of their times, so that any exporter can be fed from it."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from otel_rl.archive import files
from otel_rl.archive.writer import KINDS, read, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from otel_rl.archive.tables import Table
    from otel_rl.export import Item


class Replay:
    """The items in the folder of a machine, of each kind those after a number of them.

    Attributes:
        missing: Number of items that no intact file has, of those that were read so far.
    """

    def __init__(self, place: Path, counts: Mapping[str, int]) -> None:
        self._place, self._counts = place, counts
        self.missing = 0

    def __iter__(self) -> Iterator[tuple[str, int, Item]]:
        """Yield items by their times, and those of one kind in the order in which they were saved.

        Each comes with its kind and its number. In a file that was thinned, all have the number of its last item.
        """
        kinds = (
            self._of_kind(order, tables, self._counts.get(kind.__name__, 0))
            for order, (kind, (tables, _)) in enumerate(KINDS.items())
        )
        for *_, number, item in heapq.merge(*kinds):
            yield type(item).__name__, number, item

    def _of_kind(self, order: int, tables: tuple[Table, ...], count: int) -> Iterator[tuple[int, int, int, int, Item]]:
        """Yield the items of a kind with their numbers, each behind its place in the order of all."""
        latest, reached, places = 0, count, itertools.count()
        for file in files.of_table(self._place, tables[-1].name):
            if file.end <= count:
                continue
            found = list(read(self._place, tables, file))
            is_whole = len(found) == file.end - file.first  # otherwise spans were thinned, or the file is damaged
            self.missing += max(0, file.first - reached) + (0 if found else file.end - max(file.first, count))
            reached = file.end
            for place, item in enumerate(found, file.first):
                latest = max(latest, time_of(item))
                number = place if is_whole else file.end - 1
                if number >= count:
                    yield latest, order, next(places), number, item


def totals(place: Path) -> dict[str, int]:
    """Return the number of items of each kind that were saved in the folder of a machine."""
    found = {kind.__name__: files.of_table(place, tables[-1].name) for kind, (tables, _) in KINDS.items()}
    return {kind: of_kind[-1].end for kind, of_kind in found.items() if of_kind}
