"""The runs that are drawn: what kind of run each is, in a line that a failed test prints."""

from __future__ import annotations

from typing import Literal, NamedTuple

from hypothesis import strategies as st

Ending = Literal[
    "nothing",
    "begun",
    "live",
    "rank hangs",
    "all hang",
    "worker hangs",
    "worker is killed",
    "machine is silent",
    "finished",
    "failed",
    "cancelled",
    "killed idle",
    "killed in a phase",
    "killed with the agent",
]
"""The state of a run at the moment at which it is looked at."""
Where = Literal["one machine", "head", "apart"]
"""One machine; two of which one receives the records of the other; or two with an archive each."""
Form = Literal["flat", "nested", "parallel"]
"""The phases of a step: one after the other, one inside another one, or two at once."""


class Recipe(NamedTuple):
    """The traits of a run; all numbers that are not among them follow from the seed."""

    ending: Ending
    seed: int = 0
    ranks: int = 1
    steps: int = 40
    where: Where = "one machine"
    form: Form = "flat"
    repeats: int | None = None  # a first attempt died, and the second one repeated so many steps; `None` without one
    went_on: bool = False  # whether a hang in the middle of the run ended
    factor: float = 1.0  # from two thirds of the run on, steps take so many times as long
    slow: int = 0  # number of single slow steps
    evaluates: int = 0  # each step that this number divides evaluates; 0 for none
    waits: bool = True  # whether ranks wait for each other at the end of a step
    nan: bool = False  # whether one value is NaN
    only_logs: bool = False  # whether the trainer only logs, every tenth step
    workers: int = 0  # number of rollout workers, whose trajectories ranks wait for
    announces: bool = False  # whether the parameters say how many steps there are to be
    damaged: bool = False  # whether a file of the archive is torn
    unsaved: bool = False  # whether the archive lacks the last seconds, which the agent has seen


_HANGS = ("rank hangs", "all hang", "worker hangs", "machine is silent")
_OVER: tuple[Ending, ...] = ("finished", "failed", "cancelled", "killed idle", "killed in a phase")


def possible(recipe: Recipe) -> Recipe:
    """Return the nearest recipe that can be."""
    if recipe.ending in ("nothing", "begun"):
        return Recipe(recipe.ending, recipe.seed, recipe.ranks, 0, workers=recipe.workers)
    if recipe.ending in ("worker hangs", "worker is killed"):
        recipe = recipe._replace(workers=max(1, recipe.workers), only_logs=False)
    if recipe.ending == "machine is silent":
        recipe = recipe._replace(where="head")
    if recipe.ending in ("rank hangs", "machine is silent") or recipe.where != "one machine":
        recipe = recipe._replace(ranks=max(2, recipe.ranks))
    if recipe.ending in _HANGS or recipe.went_on:
        recipe = recipe._replace(only_logs=False)
    if recipe.only_logs:
        recipe = recipe._replace(form="flat", factor=1.0, slow=0, evaluates=0, waits=True, workers=0, repeats=None)
    steps = max(recipe.steps, 6 if recipe.factor == 1 else 60)
    most = steps // 2 - (steps // 3 + 1 if recipe.went_on else 0)  # the step that hung is not repeated: it hangs once
    return recipe._replace(
        steps=steps,
        repeats=None if recipe.repeats is None or most <= 0 else min(recipe.repeats, most),
        damaged=recipe.damaged and recipe.ending in _OVER and not recipe.only_logs,  # a file of spans is damaged
        unsaved=recipe.unsaved and recipe.ending not in _OVER,
    )


RECIPES = st.builds(
    Recipe,
    ending=st.sampled_from(
        (
            "nothing",
            "begun",
            "live",
            "live",
            "worker is killed",
            *_HANGS,
            "finished",
            "finished",
            *_OVER[1:],
            "killed with the agent",
        )
    ),
    seed=st.integers(0, 1 << 20),
    ranks=st.sampled_from((1, 1, 2, 3, 4, 8, 16)),
    steps=st.sampled_from((6, 13, 25, 60, 90)),
    where=st.sampled_from(("one machine", "one machine", "head", "apart")),
    form=st.sampled_from(("flat", "flat", "nested", "parallel")),
    repeats=st.sampled_from((None, None, 0, 3, 7)),
    went_on=st.sampled_from((False, False, False, True)),
    factor=st.sampled_from((1.0, 1.0, 1.0, 1.6, 0.6)),
    slow=st.sampled_from((0, 0, 1, 3)),
    evaluates=st.sampled_from((0, 0, 10)),
    waits=st.booleans(),
    nan=st.sampled_from((False, False, True)),
    only_logs=st.sampled_from((False,) * 7 + (True,)),
    workers=st.sampled_from((0, 0, 0, 2)),
    announces=st.booleans(),
    damaged=st.sampled_from((False,) * 5 + (True,)),
    unsaved=st.sampled_from((False, False, True)),
).map(possible)
