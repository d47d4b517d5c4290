"""A line per row, for people who look at the terminal."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from otel_rl.export import Event, Refused, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.export import Item, RunInfo

_MOST_VALUES = 8


class ConsoleExporter:
    """Prints one short line for each row and each event.

    Args:
        run: The run that is shown.
        names: Patterns of the values to print, as in a shell; by default the first eight of a row.
    """

    def __init__(self, run: RunInfo, *, names: list[str] | None = None) -> None:
        self._names = names

    def export(self, items: Sequence[Item]) -> None:
        """Print the rows and the events among `items`.

        Raises:
            Refused: Nobody reads our output any more.
        """
        lines = [self._line(item) for item in items if isinstance(item, Row | Event)]
        if not lines:
            return
        try:
            print(*lines, sep="\n", flush=True)  # noqa: T201 - it is what a console is for
        except BrokenPipeError as error:
            raise Refused("standard output is closed") from error

    def shutdown(self) -> None:
        """Leave standard output to the others who use it."""

    def _line(self, item: Row | Event) -> str:
        return "  ".join(self._row(item) if isinstance(item, Row) else _event(item))

    def _row(self, row: Row) -> Iterable[str]:
        yield f"step {row.step}"
        if row.late:
            yield "(late)"
        if row.missing_ranks:
            yield f"(without ranks {', '.join(map(str, row.missing_ranks))})"
        if self._names is None:
            yield from _first(row.values)
            return
        for name, value in row.values.items():
            if any(fnmatchcase(name, pattern) for pattern in self._names):
                yield _pair(name, value)


def _event(event: Event) -> Iterable[str]:
    yield event.name
    if event.step is not None:
        yield f"step {event.step}"
    if event.rank is not None:
        yield f"rank {event.rank}"
    yield from _first(event.attributes)


def _first(values: Mapping[str, object]) -> Iterable[str]:
    for name in list(values)[:_MOST_VALUES]:
        yield _pair(name, values[name])
    if len(values) > _MOST_VALUES:
        yield f"+{len(values) - _MOST_VALUES}"


def _pair(name: str, value: object) -> str:
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
