"""The columns of a run and its parameters, by shape: what rules about contradictions see."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from otel_rl.look.insight.contradictions.groups import CompletionGroups
    from otel_rl.look.insight.series import Floats, Integers, Series
    from otel_rl.semconv.main_metrics import MainMetrics, Topic

_OTHERS = re.compile(r"(?:^|[./])(?:val|eval|validation|test|critic|ref|reference|reward_model|rm)(?:[._/]|$)")
"""Parts of names of parameters and metrics of something else than the training of the policy."""


_COEFFICIENTS = ("_coef", "_coeff", "_coefficient")


class Shape(NamedTuple):
    """A set of names: what their words are."""

    every: frozenset[str] = frozenset()
    some: tuple[frozenset[str], ...] = ()  # of each of these sets at least one word
    none: frozenset[str] = frozenset()

    def fits(self, name: str) -> bool:
        """Return whether a name has the shape."""
        words = words_of(name)
        return self.every <= words and all(words & some for some in self.some) and not words & self.none


class AlignedRows(NamedTuple):
    """The steps in which several columns have finite values, and these values."""

    steps: Integers
    values: tuple[Floats, ...]

    def where(self, kept: Floats | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> AlignedRows:
        """Return some of the rows."""
        return AlignedRows(self.steps[kept], tuple(values[kept] for values in self.values))


class Columns:
    """The columns of a run.

    Args:
        main: The meanings of its names.
        names: The names of its metrics.
        read: Returns the series of a metric.
        parameters: Its parameters, with dots between the parts of nested names.
        groups: Returns the groups of completions that it trained on.
    """

    def __init__(
        self,
        main: MainMetrics,
        names: Iterable[str],
        read: Callable[[str], Series],
        parameters: Mapping[str, object],
        groups: Callable[[], CompletionGroups],
    ) -> None:
        self.main, self.names, self.groups = main, tuple(names), groups
        self._read = read
        self._parameters = {name: value for name, value in parameters.items() if not _OTHERS.search(name)}

    def series(self, name: str) -> Series:
        """Return the finite values of a metric."""
        return self._read(name).finite

    def steps(self, name: str) -> Integers:
        """Return the steps that have a metric, also where it is not a number."""
        return self._read(name).steps

    def is_undefined(self, name: str, least: int) -> bool:
        """Return whether a metric is not a number in any of its steps, of which there are so many at least."""
        values = self._read(name).values
        return len(values) >= least and not np.isfinite(values).any()

    def of_topic(self, topic: Topic) -> tuple[str, ...]:
        """Return the names of a topic."""
        return self.main.by_topic.get(topic, ())

    def of_shape(self, shape: Shape) -> tuple[str, ...]:
        """Return the names of a shape, without those of evaluations."""
        return tuple(name for name in self.names if shape.fits(name) and not _OTHERS.search(name))

    def rows(self, *names: str) -> AlignedRows:
        """Return the rows in which all of these columns have finite values."""
        columns = [self.series(name) for name in names]
        steps = columns[0].steps
        for column in columns[1:]:
            steps = np.intersect1d(steps, column.steps)
        return AlignedRows(steps, tuple(column.values[np.isin(column.steps, steps)] for column in columns))

    def numbers(self, *names: str) -> dict[str, float]:
        """Return the parameters with one of these names, without the parts before it, that are numbers."""
        return {
            name: float(value)
            for name, value in self._parameters.items()
            if _last(name) in names and isinstance(value, int | float) and not isinstance(value, bool)
        }

    def coefficients(self) -> dict[str, float]:
        """Return the parameters whose names end as those of coefficients."""
        return self.numbers(*(name for name in map(_last, self._parameters) if name.endswith(_COEFFICIENTS)))

    def number(self, *names: str) -> float | None:
        """Return the largest of such parameters; `None` if none was recorded."""
        return max(self.numbers(*names).values(), default=None)

    def texts(self, *names: str) -> dict[str, str]:
        """Return the parameters with one of these names that are texts."""
        known = self._parameters.items()
        return {name: value for name, value in known if _last(name) in names and isinstance(value, str)}


def words_of(name: str) -> frozenset[str]:
    """Return the words of a name, in lower case."""
    return frozenset(re.split(r"[/_.\-@ ]+", name.lower()))


def _last(name: str) -> str:
    return name.rpartition(".")[2].rpartition("/")[2].lower()
