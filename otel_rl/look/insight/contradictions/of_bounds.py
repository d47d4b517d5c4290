"""Values beyond what they are made of: an entropy below 0, a deviation above the range, a part above its whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl.look.insight.contradictions.columns import AlignedRows, Shape, words_of
from otel_rl.look.insight.contradictions.contradiction import Contradiction, of_rows
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_rl.look.insight.contradictions.columns import Columns

_LEAST, _MOSTLY, _NEARLY_ALL = 20, 0.5, 0.95
_OF_RANGE = 0.75
"""Part of the range of values that their deviation is at most: the half, and 0.71 of a sample of two."""
_SHORT = 0.9
"""Part of the longest completion below which the shortest one is shorter."""
_LONGER = 1.05
"""How many times as long as its whole a part is, at the least."""
_TIMES = frozenset(("timing", "timings", "time", "times"))
_WHOLE = frozenset(("step", "iteration", "iter", "total"))
_NO_ENTROPY = Shape(some=(frozenset(("loss", "bonus", "coef", "coeff", "penalty", "target", "grad", "delta")),))
_OF_TEXTS = frozenset(("completion", "completions", "response", "tokens"))
_MOST_SETS = 16


def wanted(names: Iterable[str]) -> list[str]:
    """Return the names that these rules read, without the main metrics."""
    known = [*names]
    return [name for names_of_set in (*_with_extremes(known, "std", "mean"), *_parts(known)) for name in names_of_set]


def negative_entropy(columns: Columns) -> Contradiction | None:
    """The entropy of a policy over tokens is not below 0; that of continuous actions may be."""
    if not any(words_of(name) & _OF_TEXTS for name in columns.names):
        return None
    for name in columns.of_topic("entropy"):
        rows = columns.rows(name)
        below = rows.values[0] < 0
        if _NO_ENTROPY.fits(name) or int(below.sum()) < _LEAST:
            continue
        found = of_rows(
            (name,),
            rows.where(below),
            f"{name} is negative in {wording.integer(int(below.sum()))} of {wording.count(len(below), 'step')}"
            f" ({wording.number(float(np.median(rows.values[0][below])))}); an entropy over tokens is not.",
            "Check the mask: padding may be counted, or it is the negative log-probability of a whole completion.",
        )
        return replace(found, covers=(name,))
    return None


def deviation_above_the_range(columns: Columns) -> Contradiction | None:
    """A standard deviation is at most half of the range of the values, and a little more in a small sample."""
    for deviation, low, high in _with_extremes(columns.names, "std"):
        rows = columns.rows(deviation, low, high)
        values, lowest, highest = rows.values
        out = values > _OF_RANGE * (highest - lowest) + 1e-9
        if len(out) >= _LEAST and out.mean() >= _NEARLY_ALL and (highest > lowest).mean() >= _MOSTLY:
            return of_rows(
                (deviation, low, high),
                rows.where(out),
                f"{deviation} is {wording.number(float(np.median(values)))}, more than {low} and {high} allow, in"
                f" {wording.count(int(out.sum()), 'step')}.",
                "Check what the deviation is of: these are not the same values.",
            )
    return None


def mean_is_the_maximum(columns: Columns) -> Contradiction | None:
    """A mean that is always the maximum, where the minimum is less, counts all as long as the longest."""
    for mean, low, high in _with_extremes(columns.names, "mean"):
        rows = columns.rows(mean, low, high)
        values, lowest, highest = rows.values
        equal = np.isclose(values, highest, rtol=1e-9) & (lowest < _SHORT * highest)
        if len(values) >= _LEAST and equal.mean() >= _NEARLY_ALL:
            return of_rows(
                (mean, high, low),
                AlignedRows(rows.steps, (values, highest, lowest)).where(equal),
                f"{mean} is always {high} ({wording.number(float(np.median(highest)))}), although {low} is"
                f" {wording.number(float(np.median(lowest)))}.",
                "Check the mask: padding is counted as if all were as long as the longest.",
            )
    return None


def part_above_its_whole(columns: Columns) -> Contradiction | None:
    """A part of a step takes no longer than the step, unless it works on several steps at the same time."""
    for part, whole in _parts(columns.names):
        rows = columns.rows(part, whole)
        inside, outside = rows.values
        above = inside > _LONGER * outside
        if len(above) >= _LEAST and above.mean() >= _NEARLY_ALL:
            found = of_rows(
                (whole, part),
                rows._replace(values=(outside, inside)).where(above),
                f"{part} is {wording.number(float(np.median(inside)))}, and {whole}, of which it is a part,"
                f" {wording.number(float(np.median(outside)))}.",
                f"If it does not work on several steps at once, {whole} leaves it out, or their units differ.",
                "note",
            )
            return replace(found, sure="likely")
    return None


def _with_extremes(names: Sequence[str], *endings: str) -> list[tuple[str, str, str]]:
    """Return statistics with these endings, with the minimum and the maximum of the same values."""
    known = {*names}
    bases = ((name, name.removesuffix(ending)) for name in names for ending in endings if name.endswith(ending))
    threes = [(name, f"{base}min", f"{base}max") for name, base in bases if base.endswith(("/", "_"))]
    return [three for three in threes if known.issuperset(three)][:_MOST_SETS]


def _parts(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    wholes = [name for name in names if _is_time(name) and words_of(name.rpartition("/")[2]) <= _WHOLE]
    for whole in wholes:
        prefix = whole.rpartition("/")[0]
        yield from (
            (name, whole)
            for name in names
            if prefix and name.rpartition("/")[0] == prefix and name != whole and name not in wholes
        )


def _is_time(name: str) -> bool:
    return bool(words_of(name.rpartition("/")[0]) & _TIMES)
