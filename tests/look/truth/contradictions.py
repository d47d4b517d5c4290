"""The contradictions of a run: between two screens, and between a screen and what is known of the run.

`python -m tests.look.truth.contradictions 40 7` draws 40 runs from the seed 7, and prints each kind of contradiction.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.look.truth.construction import made
from tests.look.truth.drawn import RECIPES, Recipe
from tests.look.truth.expected import expected_of
from tests.look.truth.generator import write
from tests.look.truth.screens import said_of

_MADE = "how it was made"


class Contradiction(NamedTuple):
    """A fact that is not the same everywhere: what is said of it, and by which screens."""

    fact: str
    texts: tuple[tuple[str, tuple[str, ...]], ...]

    def __str__(self) -> str:
        return f"{self.fact}: " + "; ".join(f"{text!r} by {', '.join(screens)}" for text, screens in self.texts)

    @property
    def kind(self) -> tuple[object, ...]:
        """The fact, and the screens that contradict each other: equal for contradictions that have one cause."""
        return self.fact.partition(" ")[0], frozenset(screens for _, screens in self.texts)


def contradictions_of(recipe: Recipe, directory: Path) -> list[Contradiction]:
    """Return the contradictions of a run, which is written into a new directory."""
    run = made(recipe)
    write(run, directory / "run")
    texts: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for fact, text in expected_of(run).items():
        texts[fact][text].append(_MADE)
    with pytest.MonkeyPatch.context() as patch:
        for said in said_of(directory, run.now, patch):
            if said.screen not in texts[said.fact][said.text]:
                texts[said.fact][said.text].append(said.screen)
    return [
        Contradiction(fact, tuple((text, tuple(screens)) for text, screens in of_fact.items()))
        for fact, of_fact in texts.items()
        if len(of_fact) > 1
    ]


def main(count: int, first: int) -> None:
    """Print the contradictions of many runs, one of each kind."""
    kinds: defaultdict[tuple[object, ...], list[tuple[Recipe, Contradiction]]] = defaultdict(list)

    @seed(first)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=[*HealthCheck])
    @given(RECIPES)
    def look(recipe: Recipe) -> None:
        with tempfile.TemporaryDirectory() as place:
            for contradiction in contradictions_of(recipe, Path(place)):
                kinds[contradiction.kind].append((recipe, contradiction))

    look()
    for found in sorted(kinds.values(), key=len, reverse=True):
        recipe, contradiction = found[0]
        told = {name: value for name, value in recipe._asdict().items() if value != recipe._field_defaults.get(name)}
        sys.stdout.write(f"{len(found)} times: {contradiction}\n    {told}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
