"""The items of an archive in the order of their times, so that any exporter can be fed from it."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.export import Span
from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.message_index import MessageIndex
from otel_rl.recorder.archive.tables import KINDS, SPANS
from otel_rl.recorder.archive.writer import read, time_of
from otel_rl.recorder.archive.written import items_of
from otel_rl.recorder.convert.gen_ai_messages import attributes_of, has_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from otel_rl.export import Item
    from otel_rl.recorder.archive.tables import ArchiveTable


class Replay:
    """The items in the folder of a machine: of each kind, the items after a number of them.

    Args:
        place: The folder.
        counts: The number of items of each kind before the first one.
        totals: The number of items of each kind that were saved.

    Attributes:
        missing: Number of items that no intact file has, of those that were read so far.
    """

    def __init__(self, place: Path, counts: Mapping[str, int], totals: Mapping[str, int]) -> None:
        self._place, self._counts, self._totals = place, counts, totals
        self._messages = MessageIndex(place.parent)
        self.missing = 0

    def __iter__(self) -> Iterator[tuple[str, int, Item]]:
        """Yield items by their times, and those of one kind in the order in which they were saved.

        Each comes with its kind and its number. In a file that was thinned, all have the number of its last item.
        """
        kinds = (self._of_kind(order, kind.__name__, tables) for order, (kind, tables) in enumerate(KINDS.items()))
        for *_, number, item in heapq.merge(*kinds):
            yield type(item).__name__, number, item

    def _of_kind(
        self, order: int, kind: str, tables: tuple[ArchiveTable, ...]
    ) -> Iterator[tuple[int, int, int, int, Item]]:
        """Yield the items of a kind with their numbers, each behind its place in the order of all."""
        count = reached = self._counts.get(kind, 0)
        latest, places = 0, itertools.count()
        for file in intact.of_table(self._place, tables[-1].name):
            if file.end <= count:
                continue
            items = read(self._place, tables, file)
            items = self._with_messages(items) if tables[-1] is SPANS else items
            is_whole = len(items) == file.end - file.first  # otherwise spans were thinned, or the file is damaged
            self.missing += max(0, file.first - reached) + (0 if items else file.end - max(file.first, count))
            reached = file.end
            for place, item in enumerate(items, file.first):
                # Never earlier than the item before: a clock can be set back, and `heapq.merge` needs each kind in
                # order.
                latest = max(latest, time_of(item))
                number = place if is_whole else file.end - 1
                if number >= count:
                    yield latest, order, next(places), number, item
        self.missing += max(0, self._totals.get(kind, 0) - reached)

    def _with_messages(self, spans: list[Item]) -> list[Item]:
        """Return spans with the messages of their trajectories, as they left during the run."""
        span_ids = {span.span_id for span in spans if isinstance(span, Span) and span.sampled and has_messages(span)}
        if not span_ids:
            return spans
        messages = self._messages.of_spans(span_ids)
        return [
            replace(span, attributes=span.attributes | attributes_of(messages[span.span_id]))
            if isinstance(span, Span) and span.span_id in messages
            else span
            for span in spans
        ]


def totals(place: Path) -> dict[str, int]:
    """Return the number of items of each kind that were saved in the folder of a machine."""
    written = items_of(place)
    ends = {kind.__name__: _end(place, tables[-1].name, written) for kind, tables in KINDS.items()}
    return {kind: end for kind, end in ends.items() if end}


def _end(place: Path, table: str, written: Mapping[str, int]) -> int:
    return max([written.get(table, 0), *(file.end for file in files.every(place, table))])
