"""The metrics that a screen shows first: the main ones, or some of those that the trainer logs if none is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.semconv.main_metrics import MainMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable

_MEASURED = ("time/", "perf/", "memory/", "time_per_token/")
"""Beginnings of names that otel-rl gives itself."""
_MOST = 8


def shown_metrics(names: Iterable[str], framework: str = "auto") -> tuple[str, ...]:
    """Return the names of a run that are shown first, in the order of screens."""
    every = list(dict.fromkeys(names))
    main = MainMetrics(every, framework).names
    if any(not name.startswith(_MEASURED) for name in main):
        return main
    return (*[name for name in every if not name.startswith(_MEASURED)][:_MOST], *main)
