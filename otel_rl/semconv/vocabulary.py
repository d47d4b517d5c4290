"""The meanings of a run's metric names, and detection of the dialect from them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.semconv import registry
from otel_rl.semconv.dialect import OWN, Reading, dialect
from otel_rl.semconv.frameworks import dialects

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_NAMES = 20_000


class Vocabulary:
    """The meanings of a run's metric names.

    With "auto", it chooses the dialect that knows most of the names seen so far. If that dialect does not know a name,
    but others do and agree, their meaning is used; if they disagree, the name is unknown.

    Args:
        name: Name of a dialect, or "auto", which is also what a dialect counts as that is not installed.

    Attributes:
        chosen: The detected or given dialect; `None` while several are equally likely.
        read: Returns the meaning of a name; `None` if it is unknown.
    """

    def __init__(self, name: str) -> None:
        self._own = dialect(OWN)
        self.chosen: str | None = name if name in dialects() else None
        self._all = [] if self.chosen else [dialect(each) for each in dialects()]
        self._known = dict.fromkeys((each.name for each in self._all), 0)
        self._seen: set[str] = set()
        self.read = lru_cache(_MOST_NAMES)(self._reading)

    def learn(self, names: Iterable[str]) -> bool:
        """Add the names of a row; return whether the chosen dialect has changed."""
        if not self._all or len(self._seen) >= _MOST_NAMES:
            return False
        fresh = [name for name in dict.fromkeys(names) if name not in self._seen][: _MOST_NAMES - len(self._seen)]
        if not fresh:
            return False
        self._seen.update(fresh)
        for each in self._all:
            self._known[each.name] += sum(each.read(name) is not None for name in fresh)
        most = max(self._known.values(), default=0)
        best = [name for name, count in self._known.items() if count == most]
        before, self.chosen = self.chosen, best[0] if len(best) == 1 else None
        if self.chosen != before:
            self.read.cache_clear()
        return self.chosen != before

    def read_row(self, name: str) -> Reading | None:
        """Return the meaning of a name in rows, where observations of `x` have `x/mean`."""
        return self.read(name) or self.read(name.removesuffix("/mean"))

    def _reading(self, name: str) -> Reading | None:
        number, _, rest = name.partition("/")
        if number.isdecimal() and (reading := self._reading(rest)) is not None:  # from a later training in the same run
            return reading
        registered = registry.metrics().get(name)
        if registered is not None and registered.instrument == "gauge":  # trainers can use the registry's names
            return Reading(name, reduce=registered.reduce)
        of_framework = None if self.chosen is None else dialect(self.chosen)
        if of_framework is not None and of_framework.read(name) is None and of_framework.declares(name):
            return None  # `time/fps` of SB3 is not a phase
        own = self._own.read(name)
        if own is not None:
            return replace(own, attributes=tuple((key, self._canonical(key, value)) for key, value in own.attributes))
        if self.chosen is not None and (reading := dialect(self.chosen).read(name)) is not None:
            return reading
        readings = [reading for each in self._all if (reading := each.read(name)) is not None]
        meanings = {(reading.metric, reading.attributes, reading.factor) for reading in readings}
        return readings[0] if len(meanings) == 1 else None

    def is_so_far(self, name: str) -> bool:
        """Return whether the dialect says that a metric without a meaning counts since the start."""
        number, _, rest = name.partition("/")
        return self.chosen is not None and dialect(self.chosen).is_so_far(rest if number.isdecimal() else name)

    def phase(self, name: str) -> str:
        """Return otel-rl's name of a phase, given the trainer's name."""
        return name if self.chosen is None else dialect(self.chosen).phases.get(name, name)

    def _canonical(self, attribute: str, value: str | int) -> str | int:
        return self.phase(value) if attribute == semconv.PHASE and isinstance(value, str) else value
