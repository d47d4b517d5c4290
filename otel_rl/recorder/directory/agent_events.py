"""The last events of the agent in a file of its machine, where callbacks of a trainer find them.

The agent replaces the file, and `run.on_event` reads it in the trainer's process.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl.export import Event
from otel_rl.recorder.files.atomic_files import read_json, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_rl.export import AttributeValue, Item

MOST = 64
"""Events in the file, the last ones."""
PREFIX = "rl."
"""How the names of otel-rl's own events begin; those of `run.event` are the trainer's."""


def read(place: Path) -> list[Event]:
    """Return the events in the file; none if it is missing, damaged or another user's."""
    return read_json(place, list[Event]) or []


class EventFile:
    """The file of a machine as its agent writes it; the events of an earlier agent stay in it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._events = deque(read(place), MOST)

    def add(self, items: Iterable[Item]) -> None:
        """Add the events of otel-rl among items, if there are any.

        Raises:
            OSError: The file cannot be written; it has them the next time.
        """
        new = [item for item in items if isinstance(item, Event) and item.name.startswith(PREFIX)]
        if new:
            self._events += [replace(item, attributes=_for_json(item.attributes)) for item in new]
            write_atomically(self._place, msgspec.json.encode([*self._events]))


def _for_json(attributes: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return attributes without numbers that JSON has not."""
    return {
        key: value for key, value in attributes.items() if not (isinstance(value, float) and not math.isfinite(value))
    }
