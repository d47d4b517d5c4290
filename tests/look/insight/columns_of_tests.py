"""Columns of values with noise, made for tests of findings about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from otel_rl.look.insight.contradictions.columns import Columns
from otel_rl.look.insight.contradictions.groups import CompletionGroup
from otel_rl.look.insight.contradictions.rules import contradictions_of
from otel_rl.look.insight.series import EMPTY, Series
from otel_rl.semconv.main_metrics import MainMetrics


def series(values: Sequence[float]) -> Series:
    """Return values of the steps from 0 on."""
    return Series(np.arange(len(values)), np.asarray(values, np.float64))


def course(level: Callable[[int], float], steps: int = 300, noise: float = 0.02, seed: int = 1) -> Series:
    """Return a level by step, with normal noise."""
    chance = np.random.default_rng(seed)
    return series([level(step) + noise * float(chance.normal()) for step in range(steps)])


def said_of(
    values: Mapping[str, Series], parameters: Mapping[str, object] | None = None, groups: Sequence[CompletionGroup] = ()
) -> list[str]:
    """Return the rules that find something in these columns."""
    columns = Columns(
        MainMetrics(values), values, lambda name: values.get(name, EMPTY), parameters or {}, lambda: tuple(groups)
    )
    return [*contradictions_of(columns)]
