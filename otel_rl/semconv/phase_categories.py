"""Categories of phases: what the trainer does in them. Colors, shares of time and sentences follow them."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from otel_rl.semconv import registry

Category = Literal[
    "rollout", "training", "reward", "sync", "evaluation", "checkpoint", "waiting", "other", "hung", "none"
]
"""The purpose of a phase; `none` is time of a step outside of its phases, `hung` time without any progress."""
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
"""The categories of phases, in the order of the RL loop; legends and stacked bars keep it."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


class _CategoryFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: dict[Category, tuple[str, ...]]
    words: tuple[tuple[Category, tuple[str, ...]], ...]
    samples: frozenset[str]  # words in the name of a wait for trajectories


class _Tables(NamedTuple):
    names: dict[str, Category]
    words: tuple[tuple[Category, tuple[str, ...]], ...]
    samples: frozenset[str]


@cache
def category_of(phase: str) -> Category:
    """Return the category of a phase, by the trainer's or the canonical name."""
    tables = _tables()
    if (known := tables.names.get(phase)) is not None:
        return known
    of_phase = words_of(phase)
    return next((category for category, listed in tables.words if not of_phase.isdisjoint(listed)), "other")


def is_wait(phase: str) -> bool:
    """Return whether a phase is a wait by design, as long as it may take: a process with a role is idle in it."""
    return category_of(phase) == "waiting"


def is_wait_for_samples(phase: str) -> bool:
    """Return whether a phase waits for trajectories."""
    return is_wait(phase) and not words_of(phase).isdisjoint(_tables().samples)


def is_listed(phase: str) -> bool:
    """Return whether the category of a phase is known by its whole name, not by a word in it."""
    return phase in _tables().names


def words_of(phase: str) -> set[str]:
    """Return the words in the name of a phase."""
    return {word.lower() for word in _WORDS.findall(phase)}


@cache
def _tables() -> _Tables:
    file = msgspec.yaml.decode(registry.content("phase_categories.yaml"), type=_CategoryFile)
    names = {name: category for category, names in file.names.items() for name in names}
    return _Tables(names, file.words, file.samples)
