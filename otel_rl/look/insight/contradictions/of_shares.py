"""Shares, means and counters that cannot be: outside of their bounds, above a limit never reached, counted twice."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl.look.insight.contradictions.columns import Shape
from otel_rl.look.insight.contradictions.contradiction import Contradiction, of_rows
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.look.insight.contradictions.columns import Columns

_LEAST = 20
_NEARLY_ALL = 0.9
_EXACT = 1e-6
_BELOW = 0.9
"""Part of the limit of the length below which nothing can have been cut."""
_PERCENT = 1.5
"""A median above which a share is in percent."""
_SHARE = frozenset(("ratio", "rate"))
_FRACTIONS = (
    Shape(some=(frozenset(("fraction", "frac", "clipfrac")),), none=frozenset(("learning", "reward"))),
    Shape(some=(_SHARE, frozenset(("clip", "clipped", "truncated", "solve", "solved", "pass", "success", "valid")))),
    Shape(some=(frozenset(("accuracy",)),), none=frozenset(("reward", "rewards"))),
)
_CUT = Shape(
    some=(
        frozenset(("clip", "clipped", "cut", "truncated", "truncation")),
        frozenset(("ratio", "rate", "fraction", "frac")),
        frozenset(("length", "response", "responses", "completion", "completions", "output", "outputs", "generation")),
    ),
    none=frozenset(("prompt", "prompts")),
)
_OF_OTHERS = frozenset(
    (
        "prompt",
        "terminated",
        "limit",
        "second",
        "per",
        "total",
        "aborted",
        "non",
        "episode",
        "ep",
        "turn",
        "turns",
        "seq",
    )
)
LONGEST = (
    Shape(
        every=frozenset(("max",)),
        some=(
            frozenset(("length", "len", "tokens")),
            frozenset(("response", "responses", "completion", "completions", "output", "outputs", "generation")),
        ),
        none=_OF_OTHERS,
    ),
    Shape(every=frozenset(("max",)), some=(frozenset(("length", "lengths", "len")),), none=_OF_OTHERS),
)
"""The longest completion; the first shape that a name has is the best."""
_LIMITS = (
    *("max_completion_length", "max_response_length", "max_new_tokens", "response_length", "generate_max_len"),
    *("max_tokens", "max_output_tokens", "max_gen_len", "max_response_tokens"),
)
_UNITS = ("tokens", "samples", "episodes", "completions")
_PLAIN = frozenset(
    ("num", "n", "total", "trained", "train", "count", "seen", "processed", "cumulative", "global", "consumed")
)
_MOST_TIMES = 16
_MOST_TRIPLES = 16


def wanted(names: Iterable[str]) -> list[str]:
    """Return the names that these rules read."""
    known = [*names]
    shaped = [name for name in known if any(shape.fits(name) for shape in (*_FRACTIONS, _CUT, *LONGEST))]
    counters = [name for name in known if any(_counts(name, unit) for unit in _UNITS)]
    return [*shaped, *counters, *(name for three in _triples(known) for name in three)]


def fraction_outside(columns: Columns) -> Contradiction | None:
    """A fraction is between 0 and 1; a share in percent is not called a fraction, and has no value below 0."""
    for name in dict.fromkeys(name for shape in _FRACTIONS for name in columns.of_shape(shape)):
        rows = columns.rows(name)
        (values,) = rows.values
        out = (values < -_EXACT) | (values > 1 + _EXACT)
        if out.any() and not ("frac" not in name.lower() and values.min() >= 0 and np.median(values) > _PERCENT):
            away = rows.where(out)
            worst = float(away.values[0][np.argmax(np.abs(away.values[0] - 0.5))])
            return of_rows(
                (name,),
                away,
                f"{name} is up to {wording.number(worst)} in {wording.count(len(away.steps), 'step')},"
                " but a fraction is between 0 and 1.",
                "Check what it is divided by: a sum over batches or ranks is not a mean.",
            )
    return None


def cut_below_the_limit(columns: Columns) -> Contradiction | None:
    """Completions are cut at the limit of their length alone, so the longest one is as long as the limit then."""
    limit = columns.number(*_LIMITS)
    context = columns.number("max_model_len", "max_seq_len", "max_seq_length", "context_length")
    longest = next((names for shape in LONGEST if (names := columns.of_shape(shape))), ())
    if not limit or not longest or (context is not None and context < 2 * limit):
        return None  # a long prompt leaves less than the limit
    for name in dict.fromkeys((*columns.of_topic("truncated"), *columns.of_shape(_CUT))):
        rows = columns.rows(name, longest[0])
        wrong = rows.where((rows.values[0] > 0) & (rows.values[1] < _BELOW * limit))
        positive = int((rows.values[0] > 0).sum())
        if len(wrong.steps) >= _LEAST and len(wrong.steps) >= _NEARLY_ALL * positive:
            return of_rows(
                (name, longest[0]),
                wrong,
                f"{name} is above 0 in {wording.count(len(wrong.steps), 'step')}, although no completion was cut: the"
                f" longest has {wording.number(float(wrong.values[1].max()))} tokens,"
                f" the limit is {wording.number(limit)}.",
                "Check what it compares with: the longest completion of a batch is not the limit.",
            )
    return None


def mean_outside_its_extremes(columns: Columns) -> Contradiction | None:
    """A mean is between the minimum and the maximum of the same values."""
    for mean, low, high in _triples(columns.names):
        rows = columns.rows(mean, low, high)
        values, lowest, highest = rows.values
        slack = 0.01 * np.maximum(np.abs(lowest), np.abs(highest)) + _EXACT
        out = (values < lowest - slack) | (values > highest + slack)
        if len(out) >= _LEAST and out.mean() >= _NEARLY_ALL:
            return of_rows(
                (mean, low, high),
                rows.where(out),
                f"{mean} is not between {low} and {high} in {wording.count(int(out.sum()), 'step')}.",
                "Check the mask and the weights of the mean: padding may be counted.",
            )
    return None


def _triples(names: Sequence[str]) -> list[tuple[str, str, str]]:
    known = {*names}
    triples = ((name, f"{name[:-4]}min", f"{name[:-4]}max") for name in names if name.endswith(("/mean", "_mean")))
    return [three for three in triples if known.issuperset(three)][:_MOST_TRIPLES]


def counters_in_ratio(columns: Columns) -> Contradiction | None:
    """Two counters of the same unit agree, or their ratio varies: a whole number in each step is counted twice."""
    for unit in _UNITS:
        counters = [name for name in columns.names if _counts(name, unit)]
        for two in combinations(sorted(counters), 2):
            rows = columns.rows(*two)
            if len(rows.steps) < _LEAST or not all((values > 0).all() for values in rows.values):
                continue
            if not all((np.diff(values) > 0).all() for values in rows.values):
                continue
            larger, smaller = sorted(zip(two, rows.values, strict=True), key=lambda pair: -float(pair[1][-1]))
            ratio = larger[1] / smaller[1]
            times = round(float(ratio[0]))
            if not 2 <= times <= _MOST_TIMES or not np.allclose(ratio, times, rtol=_EXACT):
                continue
            found = of_rows(
                (larger[0], smaller[0]),
                rows if two[0] == larger[0] else rows._replace(values=rows.values[::-1]),
                f"{larger[0]} is exactly {times} times {smaller[0]} in all {wording.count(len(rows.steps), 'step')}.",
                f"If both count {unit} of the training, one counts each {times} times: by rank, by update or by epoch.",
                "note",
            )
            return replace(found, sure="possible")
    return None


def _counts(name: str, unit: str) -> bool:
    words = {*name.lower().replace("/", "_").replace(".", "_").split("_")}
    return unit in words and words - {unit} <= _PLAIN
