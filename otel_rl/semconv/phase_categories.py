"""Categories of phases: what the trainer does in them. Colors, shares of time and sentences follow them."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

import msgspec

from otel_rl.semconv import registry

Category = Literal["rollout", "training", "reward", "sync", "evaluation", "checkpoint", "waiting", "other", "none"]
"""The purpose of a phase; `none` is time of a step outside of its phases."""
CATEGORIES: tuple[Category, ...] = (
    "rollout",
    "reward",
    "training",
    "sync",
    "evaluation",
    "checkpoint",
    "waiting",
    "other",
    "none",
)
"""All categories, in the order of the RL loop; legends and stacked bars keep it."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: dict[Category, tuple[str, ...]]
    words: tuple[tuple[Category, tuple[str, ...]], ...]


@cache
def category_of(phase: str) -> Category:
    """Return the category of a phase, by the trainer's or the canonical name."""
    names, words = _tables()
    if (known := names.get(phase)) is not None:
        return known
    of_phase = words_of(phase)
    return next((category for category, listed in words if not of_phase.isdisjoint(listed)), "other")


def words_of(phase: str) -> set[str]:
    """Return the words in the name of a phase."""
    return {word.lower() for word in _WORDS.findall(phase)}


@cache
def _tables() -> tuple[dict[str, Category], tuple[tuple[Category, tuple[str, ...]], ...]]:
    file = msgspec.yaml.decode(registry.content("phase_categories.yaml"), type=_File)
    return {name: category for category, names in file.names.items() for name in names}, file.words
