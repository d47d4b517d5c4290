"""Chooses names in rows and tables, so that nothing that was logged takes the place of something else."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from otel_rl.recorder.agent.steps.window import NONFINITE
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.recorder.agent.steps.contribution import Whole
    from otel_rl.recorder.agent.steps.naming import Reductions
    from otel_rl.recorder.agent.steps.state import Kind, Source

logger = log_of(__name__)
_MOST_REMEMBERED = 100_000
"""Names in rows; far more than rows may have, by the default of `rows.limit`."""
_MOST_NAMED = 1_000
"""Renamed values and tables that are named in the log, and saved in the checkpoint, which is in each batch."""


class RowNames:
    """The names of logged values and tables in what exporters get.

    Two of them can ask for one name: observations of `x` become `x/mean`, and `x@sum` becomes `x`; some trackers keep
    values and tables in one place. The first one keeps the name in all later rows; within a step, the one that was
    logged under this very name is the first. The other one keeps its tag, or gets a `_`: `x_/mean`.

    Args:
        reductions: How values are reduced.
        renamed: What was renamed so far; it is added to.

    Attributes:
        count: The number of names that were taken.
    """

    def __init__(self, reductions: Reductions, renamed: dict[Source, str]) -> None:
        self._reductions, self._renamed = reductions, renamed
        self.count = len(renamed)
        self._forget()

    def _forget(self) -> None:
        """Know the names of what was renamed alone."""
        self._bases: dict[Source, str] = {}
        saved = self._renamed.items()
        self._owners = {name: source for source, base in saved for name in self._names(source, base)}

    def learn(self, step: Whole) -> None:
        """Choose the names of what is new in this step."""
        logged: list[Source] = [(name, "value") for name in step.values]
        logged += [(name, "observations") for name in step.pools]
        logged += [(table.name, "table") for one in step.by.values() for table in one.tables]
        new = [source for source in logged if source not in self._bases]
        if new and len(self._owners) > _MOST_REMEMBERED:
            self._forget()
            new = logged
        for source in sorted(new, key=self._is_changed):
            self._bases[source] = self._choose(source)

    def base(self, logged: str, kind: Kind) -> str:
        """Return the name of what was logged, without the `/<statistic>` of values that have several."""
        return self._bases[logged, kind]

    def _is_changed(self, source: Source) -> bool:
        """Return whether its name in rows is not the logged one."""
        return source[0] not in self._names(source, self._asked(source))

    def _choose(self, source: Source) -> str:
        base = next(base for base in self._candidates(source) if not self._taken(source, base))
        asked = self._asked(source)
        if base != asked and source not in self._renamed:
            self.count += 1
            if self.count <= _MOST_NAMED:
                self._renamed[source] = base
                what = (*self._taken(source, asked)[:1], *source, self._names(source, base)[0])
                logger.warning("metric name collision: %s exists already; %s (%s) is called %s", *what)
        self._owners |= dict.fromkeys(self._names(source, base), source)
        return base

    def _candidates(self, source: Source) -> Iterator[str]:
        yield self._renamed.get(source, self._asked(source))
        for more in count():
            yield source[0] + "_" * more

    def _taken(self, source: Source, base: str) -> list[str]:
        return [name for name in self._names(source, base) if self._owners.get(name, source) != source]

    def _names(self, source: Source, base: str) -> list[str]:
        logged, kind = source
        if kind == "table":
            return [base]
        reduction = self._reductions.of(logged, observations=kind == "observations")
        names = [name for name, _ in reduction.targets(base)]
        return [*names, f"{base}/{NONFINITE}"] if kind == "observations" else names

    def _asked(self, source: Source) -> str:
        logged, kind = source
        return logged if kind == "table" else self._reductions.of(logged, observations=kind == "observations").name
