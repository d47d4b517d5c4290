"""The file names of tables that arrive in parts, so that no part replaces another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rl.export import Table

_REMEMBERED = 1024

_Part = tuple[tuple[str, ...], tuple[int, ...]]


class TablePlaces:
    """Remembers which parts of a table were written, for the newest 1,024 tables."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[int, dict[_Part, str]]] = {}

    def suffix(self, place: str, table: Table) -> str:
        """Return the suffix for `place`: empty for the first part, `.ranks-2-5` for later ones.

        A table with a part number gets it as its suffix, `.part-1`, after its attempt if that is not the first one.
        Other parts differ by columns and ranks: a part that is written again gets the same suffix. The first part of a
        later attempt replaces all parts. Late parts of an earlier attempt get a suffix with that attempt.
        """
        if table.part:
            return f"{f'.attempt-{table.attempt}' if table.attempt else ''}.part-{table.part}"
        attempt, parts = self._written.get(place, (table.attempt, {}))
        part = (table.columns, table.ranks)
        if table.attempt > attempt or not parts:
            return ""
        if table.attempt == attempt and part in parts:
            return parts[part]
        ends = {min(table.ranks, default=0), max(table.ranks, default=0)}  # late ranks of a step have none in common
        suffix = f".ranks-{'-'.join(map(str, sorted(ends)))}"
        if table.attempt < attempt:
            return f".attempt-{table.attempt}{suffix}"
        return f"{suffix}.{len(parts)}" if suffix in parts.values() else suffix

    def wrote(self, place: str, table: Table) -> None:
        """Remember that a part was written."""
        if table.part:
            return
        suffix = self.suffix(place, table)
        attempt, parts = self._written.pop(place, (table.attempt, {}))
        if table.attempt > attempt:
            attempt, parts = table.attempt, {}
        if table.attempt == attempt:
            parts[table.columns, table.ranks] = suffix
        self._written[place] = (attempt, parts)
        if len(self._written) > _REMEMBERED:
            del self._written[next(iter(self._written))]
