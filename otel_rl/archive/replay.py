"""The items of an archive in the order of their times, so that any exporter can be fed from it."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.archive import files
from otel_rl.archive.tables import MESSAGES, SPANS
from otel_rl.archive.valid import literal
from otel_rl.archive.writer import KINDS, read, time_of
from otel_rl.convert.gen_ai_messages import Said, attributes_of, has_messages
from otel_rl.export import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from otel_rl.archive.tables import Table
    from otel_rl.export import Item

_SAID = """SELECT span_id, author, name, text, cut, coalesce(calls, '')
    FROM messages WHERE span_id IN ({ids}) ORDER BY attempt, step, number"""


class Replay:
    """The items in the folder of a machine, of each kind those after a number of them.

    Args:
        place: The folder.
        counts: The number of items of each kind before the first one.
        totals: The number of items of each kind that were saved.

    Attributes:
        missing: Number of items that no intact file has, of those that were read so far.
    """

    def __init__(self, place: Path, counts: Mapping[str, int], totals: Mapping[str, int]) -> None:
        self._place, self._counts, self._totals = place, counts, totals
        self._run = place.parent.parent
        self.missing = 0

    def __iter__(self) -> Iterator[tuple[str, int, Item]]:
        """Yield items by their times, and those of one kind in the order in which they were saved.

        Each comes with its kind and its number. In a file that was thinned, all have the number of its last item.
        """
        kinds = (self._of_kind(order, kind.__name__, tables) for order, (kind, (tables, _)) in enumerate(KINDS.items()))
        for *_, number, item in heapq.merge(*kinds):
            yield type(item).__name__, number, item

    def _of_kind(self, order: int, kind: str, tables: tuple[Table, ...]) -> Iterator[tuple[int, int, int, int, Item]]:
        """Yield the items of a kind with their numbers, each behind its place in the order of all."""
        count = reached = self._counts.get(kind, 0)
        latest, places = 0, itertools.count()
        for file in files.of_table(self._place, tables[-1].name):
            if file.end <= count:
                continue
            found = list(read(self._place, tables, file))
            found = self._with_messages(found) if tables[-1] is SPANS else found
            is_whole = len(found) == file.end - file.first  # otherwise spans were thinned, or the file is damaged
            self.missing += max(0, file.first - reached) + (0 if found else file.end - max(file.first, count))
            reached = file.end
            for place, item in enumerate(found, file.first):
                latest = max(latest, time_of(item))
                number = place if is_whole else file.end - 1
                if number >= count:
                    yield latest, order, next(places), number, item
        self.missing += max(0, self._totals.get(kind, 0) - reached)

    def _with_messages(self, spans: list[Item]) -> list[Item]:
        """Return spans with the messages of their trajectories, as they left during the run."""
        theirs = {one.span_id for one in spans if isinstance(one, Span) and one.sampled and has_messages(one)}
        if not theirs or not files.of_table(self._place, MESSAGES.name):
            return spans
        from otel_rl.archive.reader import open_run  # DuckDB

        said: defaultdict[str, list[Said]] = defaultdict(list)
        query = _SAID.format(ids=", ".join(map(literal, theirs)))
        with contextlib.suppress(OSError):  # then spans leave without them
            for span_id, *message in chain.from_iterable(open_run(self._run, attempts="all").stream(query)):
                said[span_id].append(Said(*message))
        return [
            replace(one, attributes=one.attributes | attributes_of(said[one.span_id]))
            if isinstance(one, Span) and one.span_id in said
            else one
            for one in spans
        ]


def totals(place: Path) -> dict[str, int]:
    """Return the number of items of each kind that were saved in the folder of a machine."""
    found = {kind.__name__: files.of_table(place, tables[-1].name) for kind, (tables, _) in KINDS.items()}
    return {kind: of_kind[-1].end for kind, of_kind in found.items() if of_kind}
