"""All screens say the same of a run, at the same moment, to the last digit; and it is what happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from tests import samples
from tests.look.truth.contradictions import contradictions_of
from tests.look.truth.drawn import RECIPES, Recipe, possible

_CASES = {
    "hung": Recipe("rank hangs", ranks=4, steps=25, where="head"),
    "resumed": Recipe("finished", ranks=2, steps=60, form="nested", repeats=3, factor=1.6),
    "killed": Recipe("killed in a phase", ranks=3, steps=25, where="apart", waits=False),
    "live": Recipe("live", ranks=2, steps=25, form="parallel", announces=True, nan=True),
    "went on": Recipe("finished", ranks=3, steps=25, where="apart", form="nested", went_on=True, waits=False),
    "damaged": Recipe("cancelled", ranks=2, steps=25, where="head", damaged=True),
    "torn": Recipe("killed in a phase", seed=231, ranks=2, steps=90, where="head", slow=3, evaluates=10, waits=False),
    "workers end later": Recipe(
        *("failed", 497075), steps=13, form="nested", slow=1, evaluates=10, waits=False, workers=2, announces=True
    ),
    "empty": Recipe("nothing"),
}
_FAST = ("hung", "killed", "empty")


def holds(recipe: Recipe, directory: Path) -> None:
    assert [str(contradiction) for contradiction in contradictions_of(recipe, directory)] == []


@pytest.mark.parametrize(
    "case", [case if case in _FAST else pytest.param(case, marks=pytest.mark.slow) for case in _CASES]
)
def test_a_run_of_each_kind(tmp_path: Path, case: str) -> None:
    """One that hangs, was resumed, was killed, goes on, hung in its middle, lost a file, failed, or has no records."""
    holds(possible(_CASES[case]), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(samples.of(900, 7200))
@settings(max_examples=samples.of(30, 400), phases=[Phase.reuse, Phase.generate])
@given(recipe=RECIPES)
def test_drawn_runs(tmp_path_factory: pytest.TempPathFactory, recipe: Recipe) -> None:
    """Of all kinds, with 1 to 16 ranks, one and two machines; `ALL_SAMPLES=1` takes 400."""
    holds(recipe, tmp_path_factory.mktemp("drawn"))
