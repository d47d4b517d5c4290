"""Runs that differ in their seed alone, and their lines as one: the mean of the runs, between lowest and highest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.look.ui.run_ranges import Column

_SEED = re.compile(r"(?:.*[._/-])?(?:\w+_)?seed", re.IGNORECASE)
_MOST_PLACES = 2000


class LinePoints(NamedTuple):
    """The points of a line."""

    xs: Column
    low: Column
    high: Column
    mean: Column


def of_same_seeds(parameters: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """Return for each run the first one that differs from it in its seed alone, by the parameters of all.

    A run without parameters is like no other: nothing says what it is.
    """
    first: dict[object, str] = {}
    same = {}
    for key, values in parameters.items():
        rest = tuple(sorted((name, repr(value)) for name, value in values.items() if not _SEED.fullmatch(name)))
        has_seed = len(rest) < len(values)
        same[key] = first.setdefault(rest, key) if has_seed else key
    return same


def as_band(lines: Sequence[LinePoints]) -> LinePoints:
    """Return the lines of several runs as one: where each run has values, their mean, lowest and highest one."""
    if len(lines) == 1:
        return lines[0]
    xs = np.unique(np.concatenate([line.xs for line in lines]))
    if len(xs) > _MOST_PLACES:
        xs = max((line.xs for line in lines), key=len)
    values = np.array([np.interp(xs, line.xs, line.mean, np.nan, np.nan) for line in lines if len(line.xs)])
    some = np.isfinite(values).any(axis=0)
    values = values[:, some]
    return LinePoints(xs[some], np.nanmin(values, axis=0), np.nanmax(values, axis=0), np.nanmean(values, axis=0))
