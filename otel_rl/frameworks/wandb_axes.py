"""The steps at which values of a W&B run are recorded.

W&B charts a metric over the axis that `define_metric` declares for its name, or for a prefix of it: `train/*`, `*`. A
call that leaves the axis out gets its last value. Metrics without an axis are at the `step=` of the call, else at a
usual axis among its values, else at the axis of `*`, else at W&B's own counter of calls, as W&B charts them.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_USUAL = ("global_step", "train/global_step", "trainer/global_step", "step", "train/step")
_OF_WANDB = frozenset({"_step", "_timestamp", "_runtime"})
"""Names that W&B sets itself. Its times are not steps."""


class Axes:
    """The axes of one run, and their last values."""

    def __init__(self) -> None:
        self._axis_of: dict[str, str] = {}
        self._last: dict[str, int] = {}

    def define(self, name: str, axis: str | None) -> None:
        """Declare the axis of a metric, or of all whose names begin as one that ends with `*`."""
        self._axis_of[name] = "" if axis is None or axis in _OF_WANDB else axis

    def by_step(
        self, values: Mapping[str, Any], given: int | None, counter: int | None
    ) -> dict[int | None, dict[str, Any]]:
        """Return the values of a call by their step, without the axes that give it.

        Args:
            values: The values of the call.
            given: The step in the call.
            counter: W&B's counter of calls.
        """
        given_axes = _read(values, self._axis_of.values())
        self._axis_of = {
            name: "" if axis in values and axis not in given_axes else axis for name, axis in self._axis_of.items()
        }
        axes = {name: self._axis(name) for name in values if name not in _OF_WANDB}
        usual = _read(values, _USUAL)
        self._last |= given_axes
        of_all = self._last.get(self._axis_of.get("*", ""), counter)
        common = next(iter(usual.values()), of_all) if given is None else given
        used = {*given_axes}.intersection(axes.values()).union([*usual][:1] if given is None else ())
        by_step: dict[int | None, dict[str, Any]] = {}
        for name, axis in axes.items():
            if name not in used:
                by_step.setdefault(self._last.get(axis, common), {})[name] = values[name]
        return by_step

    def _axis(self, name: str) -> str:
        """Return the axis of a metric, of the longest prefix that is declared; empty if it has none."""
        if name in self._axis_of:
            return self._axis_of[name]
        prefixes = [pattern for pattern in self._axis_of if pattern.endswith("*") and name.startswith(pattern[:-1])]
        return self._axis_of[max(prefixes, key=len)] if prefixes else ""


def _read(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, int]:
    """Return those of the names whose values are whole numbers, with the numbers."""
    return {name: number for name in names if (number := _whole(values.get(name))) is not None}


def _whole(value: Any) -> int | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() and value >= 0 else None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if number >= 0 and not isinstance(value, bool) else None
