"""Chooses the metrics of rows that trackers get."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from otel_rl.setup.conversion import function_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Number = int | float

_MOST_REMEMBERED = 20_000


class Filter:
    """Chooses metrics by their names.

    Args:
        chosen: `"full"`; `module:qualname` of a function from values to values; or name patterns, of which the last
            one that matches decides. A pattern after a `!` excludes; if the first pattern excludes, all other metrics
            are chosen.
    """

    def __init__(self, chosen: str | Sequence[str] = "full") -> None:
        self._function = function_at(chosen) if isinstance(chosen, str) else None
        is_full = self._function is not None or chosen in ("", "full")
        patterns = () if is_full else (chosen,) if isinstance(chosen, str) else tuple(chosen)
        self._rules = [(not p.startswith("!"), re.compile(fnmatch.translate(p.removeprefix("!")))) for p in patterns]
        self._default = not self._rules or not self._rules[0][0]
        self._decided: dict[str, bool] = {}

    def select(self, values: Mapping[str, Number]) -> dict[str, Number]:
        """Return the chosen values."""
        if self._function is not None:
            return dict(self._function(values))
        if not self._rules:
            return dict(values)
        return {name: value for name, value in values.items() if self._is_chosen(name)}

    def _is_chosen(self, name: str) -> bool:
        chosen = self._decided.get(name)
        if chosen is None:
            said = [includes for includes, pattern in self._rules if pattern.fullmatch(name)]
            chosen = said[-1] if said else self._default
            if len(self._decided) < _MOST_REMEMBERED:
                self._decided[name] = chosen
        return chosen
