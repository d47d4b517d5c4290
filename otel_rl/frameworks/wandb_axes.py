"""The steps at which values of a run of W&B or SwanLab are recorded.

W&B charts a metric over the axis that `define_metric` declares for its name, or for a prefix of it: `train/*`, `*`. A
call that leaves the axis out gets its last value. Metrics without an axis are at the `step=` of the call, else at a
usual axis among its values, else at the axis of `*`, else at W&B's own counter of calls, as W&B charts them.

A value of an axis that a row cannot have, such as -1 or 0.5, is a value. Its neighbors are behind the last row of the
axis: at W&B's counter, or at the next step if the axis is ahead of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.tracker import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

USUAL = ("global_step", "train/global_step", "trainer/global_step", "step", "train/step")
_OF_TRACKER = frozenset({"_step", "_timestamp", "_runtime", "_relative_time"})
"""Names that W&B and SwanLab set themselves. Their times are not steps."""
_NO_STEP = "a value of the axis %s is not a step, such as %s; its rows follow the last one"


class Axes:
    """The axes of one run, and their last values.

    Args:
        warn: Called with a text and its details, for each axis with a value that is not a step.
        tracker: The name of the tracker.
        usual: Names that are axes without a declaration.
    """

    def __init__(self, warn: Callable[..., None], tracker: str = "wandb", usual: Iterable[str] = USUAL) -> None:
        self._warn, self._tracker, self._usual = warn, tracker, usual
        self._axis_of: dict[str, str] = {}
        self._last: dict[str, int] = {}
        self._behind: set[int] = set()  # steps of rows whose axis had another value

    def define(self, name: str, axis: str | None, *, overwrite: bool = False) -> None:
        """Declare the axis of a metric, or of all whose names begin as one that ends with `*`.

        Args:
            name: Its name.
            axis: Its axis. `None` leaves an earlier one, since the declaration may be of something else.
            overwrite: If true, no earlier one is left.
        """
        if axis is not None or overwrite:
            self._axis_of[name] = "" if axis is None or axis in _OF_TRACKER else axis
        else:
            self._axis_of.setdefault(name, "")

    def by_step(
        self, values: Mapping[str, Any], given: int | None, counter: int | None
    ) -> dict[int | None, dict[str, Any]]:
        """Return the values of a call by their step, without the axes that give it.

        Args:
            values: The values of the call.
            given: The step in the call.
            counter: W&B's counter of calls.
        """
        declared = {axis for axis in self._axis_of.values() if axis in values}
        given_axes = _read(values, declared)
        axes = {name: self._axis(name) for name in values if name not in _OF_TRACKER}
        usual = _read(values, self._usual)
        used = {*given_axes}.intersection(axes.values()).union([*usual][:1] if given is None else ())
        for axis in declared.intersection(axes.values()):
            self._place(axis, values[axis], given_axes, counter)
        self._last |= given_axes
        of_all = self._last.get(self._axis_of.get("*", ""), counter)
        common = next(iter(usual.values()), of_all) if given is None else given
        by_step: dict[int | None, dict[str, Any]] = {}
        for name, axis in axes.items():
            if name not in used:
                by_step.setdefault(self._last.get(axis, common), {})[name] = values[name]
        return by_step

    def _place(self, axis: str, value: object, steps: dict[str, int], counter: int | None) -> None:
        """Choose another step for a row whose axis has no step, or one that such a row has taken."""
        if axis not in steps or steps[axis] in self._behind:
            if axis not in steps:
                self._warn(f"{self._tracker}: {_NO_STEP}", axis, value)
            steps[axis] = max(counter or 0, self._last.get(axis, -1) + 1)
            self._behind.add(steps[axis])

    def _axis(self, name: str) -> str:
        """Return the axis of a metric, of the longest prefix that is declared; empty if it has none."""
        if name in self._axis_of:
            return self._axis_of[name]
        prefixes = [pattern for pattern in self._axis_of if pattern.endswith("*") and name.startswith(pattern[:-1])]
        return self._axis_of[max(prefixes, key=len)] if prefixes else ""


def _read(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, int]:
    """Return those of the names whose values are whole numbers, with the numbers."""
    return {name: number for name in names if (number := whole(values.get(name))) is not None}
