"""How many tokens a run had trained on at its steps, from what its framework logs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl.semconv.main_metrics import MainMetrics

if TYPE_CHECKING:
    from otel_rl.look.ui.run_ranges import Column, RunRanges

_SO_FAR, _OF_STEP = "rl.train.tokens", "rl.train.step.tokens"


class TokenName(NamedTuple):
    """The name under which a run logs its tokens."""

    name: str
    is_sum: bool  # if true, a value is the number since the start of the run, else that of a step


@lru_cache(256)
def token_name(names: tuple[str, ...]) -> TokenName | None:
    """Return the name of the tokens among those of a run; `None` without one."""
    vocabulary = MainMetrics(names).vocabulary
    by_metric: dict[str, str] = {}
    for name in names:
        reading = vocabulary.read_row(name)
        if reading is not None and not reading.attributes:
            by_metric.setdefault(reading.metric, name)
    if _SO_FAR in by_metric:
        return TokenName(by_metric[_SO_FAR], is_sum=True)
    return TokenName(by_metric[_OF_STEP], is_sum=False) if _OF_STEP in by_metric else None


def tokens_at(run: RunRanges) -> Column:
    """Return the tokens at the end of each range of steps; NaN where they are unknown."""
    known = token_name(run.names)
    tokens = np.full(len(run.steps.bucket), np.nan)
    if known is None:
        return tokens
    values = run.values[known.name]
    at = np.searchsorted(run.steps.bucket, values.bucket)
    if known.is_sum:
        tokens[at] = values.high
        return tokens
    of_ranges = np.zeros(len(tokens))
    of_ranges[at] = values.total
    return np.cumsum(of_ranges) if len(values.bucket) else tokens
