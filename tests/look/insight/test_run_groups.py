"""Groups of runs: what they cost together, and which one is the best."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.look.insight.facts import Cost, Evidence, Facts, Finding, Summary
from otel_rl.look.insight.run_groups import RunGroup, groups_of, total
from otel_rl.look.insight.run_values import RunValues
from otel_rl.look.insight.selection import column_of
from otel_rl.recorder.archive.now import Curve, Progress
from otel_rl.recorder.archive.present import RunPresent

_MANY = 30
_FREE = Cost()


def run(name: str, reward: float | None, *findings: Finding, project: str = "math", cost: Cost = _FREE) -> RunValues:
    """Return a run whose reward ends at a level; without one if it has none."""
    chance = random.Random(name)
    points = tuple((step, (reward or 0) + chance.gauss(0, 0.01)) for step in range(_MANY))
    curves = (Curve("reward", points),) if reward is not None else ()
    present = RunPresent(
        path=f"/runs/{name}", id=name, project=project, name=name, progress=Progress(curves=curves, steps=_MANY)
    )
    summary = Summary(id=name, project=project, name=name, state="finished")
    return RunValues(present, 0, facts=Facts(summary=summary, findings=findings, cost=cost))


def known(values: RunValues) -> Facts | None:
    """Return the facts that a list has read already."""
    return values.known_facts


def alone(runs: Sequence[RunValues]) -> RunGroup:
    """Return the one group of runs."""
    (group,) = groups_of(runs, None, known)
    return group


def finding(severity: str, *names: str) -> Finding:
    """Return a finding about metrics."""
    return Finding(kind="learning", severity=severity, sentence="It is so.", evidence=Evidence(names=names))  # type: ignore[arg-type]


def test_the_best_run() -> None:
    """The one with the highest reward at its end is named, with its number."""
    group = alone([run("a", 0.5), run("b", 0.8), run("c", 0.7)])

    assert group.best == ("/runs/b",)
    assert group.sentences == ("Best of 3 by the mean of the last 20 values: b (reward 0.799).",)


@pytest.mark.parametrize("doubt", [finding("bad"), finding("warning", "reward")])
def test_a_run_that_is_not_to_be_believed(doubt: Finding) -> None:
    """A run with a problem, or a warning about this reward, is not the best: the sentence says why."""
    group = alone([run("hacked", 1.3, doubt), run("b", 0.8), run("c", 0.7)])

    assert group.best == ("/runs/b",)
    assert group.sentences[-1] == "hacked (reward 1.3) seems better, but: It is so."


def test_a_warning_about_something_else() -> None:
    """A slow run can be the best."""
    assert alone([run("slow", 0.9, finding("warning", "time/step")), run("b", 0.8)]).best == ("/runs/slow",)


def test_runs_that_do_not_differ_clearly() -> None:
    """They are named with the best one: the noise of their last steps is larger than what is between them."""
    group = alone([run("a", 0.8), run("b", 0.801), run("c", 0.5)])

    assert group.sentences[1] in ("Not clearly better than a.", "Not clearly better than b.")


def test_no_best_run() -> None:
    """Nothing is said of one run, of runs without a reward, and while facts of one are not known."""
    one = run("a", 0.8)
    unread = RunValues(run("b", 0.9).run, 0)

    for runs in ([one], [one, run("b", None)], [run("c", None), run("d", None)], [one, unread]):
        assert (alone(runs).best, alone(runs).sentences) == ((), ())


def test_runs_of_two_projects() -> None:
    """Rewards of two projects are not compared: each has its best."""
    runs = [run("a", 0.5), run("b", 0.8), run("c", 9.0, project="code"), run("d", 8.0, project="code")]

    assert alone(runs).best == ("/runs/b", "/runs/c")
    assert [sentence.partition(":")[0] for sentence in alone(runs).sentences] == ["math", "code"]
    assert [group.label for group in groups_of(runs, column_of("project"), known)] == ["math", "code"]


def test_the_cost_of_a_group() -> None:
    """Hours, money and tokens are sums, the wasted share is one of the hours, and what is unknown is said."""
    costs = [Cost(gpu_hours=3.0, wasted_share=0.5, money=6.0, tokens=10), Cost(gpu_hours=1.0, wasted_share=0.1), Cost()]
    group = alone([run(str(number), 0.5, cost=cost) for number, cost in enumerate(costs)])

    assert group.cost == Cost(gpu_hours=4.0, wasted_share=0.4, money=6.0, tokens=10)
    assert group.spent == "4 GPU-hours (40 % wasted), cost 6, 10 tokens; 2 of 3 runs recorded their GPUs"


@given(
    st.lists(
        st.builds(
            Cost,
            gpu_hours=st.none() | st.floats(0, 1e6),
            wasted_share=st.none() | st.floats(0, 1),
            tokens=st.none() | st.integers(0, 10**12),
            money=st.none() | st.floats(0, 1e6),
        )
    )
)
def test_sums(costs: list[Cost]) -> None:
    """They do not depend on the order, the share is one, and what no run knows stays unknown."""
    together, priced = total(costs)
    backwards, _ = total(reversed(costs))

    assert priced == sum(cost.gpu_hours is not None for cost in costs)
    assert (together.gpu_hours is None) == (priced == 0)
    assert together.tokens == backwards.tokens
    assert together.wasted_share is None or 0 <= together.wasted_share <= 1 + 1e-9
