"""Signs that no single step shows: evaluations that part from the reward, lost resumes, collapses, bad critics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from otel_rl.look.insight import facts_of
from otel_rl.look.insight.facts import Finding
from otel_rl.look.insight.recorded import RecordedRun
from tests.look.insight.played import Played, Player

STEPS = 120
CHANCE = np.random.default_rng(3).normal(size=2 * STEPS)
Values = Callable[[int], Mapping[str, float]]


def noisy(level: float, step: int, size: float = 0.02) -> float:
    return level + size * float(CHANCE[step])


def findings(place: Path, values: Values) -> list[Finding]:
    """Return the findings of a training with these values."""
    player = Player(place / "run", Played(values=lambda step, _rank: values(step)))
    player.start()
    player.steps(range(STEPS))
    player.finish()
    return [*facts_of(player.open()).findings]


def said(place: Path, values: Values) -> str:
    return " ".join(finding.sentence for finding in findings(place, values))


def rising(step: int) -> dict[str, float]:
    return {"reward": noisy(0.3 + step / 300, step)}


@pytest.mark.parametrize("name", ["val/accuracy", "eval_reward"])
def test_an_evaluation_that_falls_while_the_reward_rises(tmp_path: Path, name: str) -> None:
    """It is a warning that names both, in the place of the reward's course."""
    values = lambda step: rising(step) | ({name: 0.6 - step / 400} if step % 5 == 4 else {})  # noqa: E731
    found = findings(tmp_path, values)

    assert any(f"while {name} fell" in one.sentence and one.severity == "warning" for one in found)
    assert not any(one.severity == "good" and "Reward" in one.sentence for one in found)


def test_evaluations_of_which_one_rises(tmp_path: Path) -> None:
    """A part of the tasks becomes worse, and another one better: the whole may still improve."""
    values = lambda step: rising(step) | {"val/a/score": 0.6 - step / 400, "val/b/score": 0.3 + step / 400}  # noqa: E731

    assert "does not carry over" not in said(tmp_path, values)


def test_completions_that_collapse(tmp_path: Path) -> None:
    """To a few tokens; a policy that became concise has more of them."""
    collapsed = lambda step: {"response_length/mean": noisy(400 if step < 60 else 8, step, 1)}  # noqa: E731
    concise = lambda step: {"response_length/mean": noisy(400 if step < 60 else 120, step, 1)}  # noqa: E731

    assert "completions collapsed" in said(tmp_path / "a", collapsed)
    assert "completions collapsed" not in said(tmp_path / "b", concise)


def test_a_critic_that_is_worse_than_none(tmp_path: Path) -> None:
    """In the last third of the steps; one that begins so learns."""
    bad = lambda step: {"critic/vf_explained_var": noisy(-1.0, step)}  # noqa: E731
    learns = lambda step: {"critic/vf_explained_var": noisy(-1 + step / 60, step)}  # noqa: E731

    assert "the critic is worse" in said(tmp_path / "a", bad)
    assert "the critic is worse" not in said(tmp_path / "b", learns)


def test_an_explosion_in_the_first_half(tmp_path: Path) -> None:
    """And the learning rate that had risen until then."""
    values = lambda step: {"grad_norm": noisy(0.5 if step < 40 else 60, step), "lr": 1e-9 * step**3}  # noqa: E731
    text = said(tmp_path, values)

    assert "Gradient norm rose to 60" in text
    assert "while lr rose" in text


@pytest.mark.parametrize(("level", "is_lost"), [(0.3, True), (0.68, False)])
def test_a_resume_that_lost_what_was_learned(tmp_path: Path, level: float, is_lost: bool) -> None:
    """The steps that it repeats have the reward of the start; one that goes on is well."""
    rises = Played(values=lambda step, _rank: {"reward": noisy(0.3 + step / 300, step)})
    player = Player(tmp_path / "run", rises)
    player.start()
    player.steps(range(STEPS))
    player.lose(0)
    player.training.values = lambda step, _rank: {"reward": noisy(level + (step - 110) / 300, step)}
    player.start(after=60)
    player.steps(range(110, 170))
    player.finish()
    text = " ".join(finding.sentence for finding in facts_of(player.open()).findings)

    assert ("most of what was learned is lost" in text) is is_lost


@pytest.mark.parametrize(
    ("phase", "name", "was", "now", "is_named"),
    [
        ("generate", "num_turns/mean", 2, 5, True),
        ("generate", "engine/cache_hit_rate", 0.8, 0.2, True),
        ("generate", "env/retries", 0, 14, True),
        ("generate", "num_turns/mean", 2, 2, False),
        ("generate", "num_turns/mean", 5, 2, False),
        ("weight_sync", "num_turns/mean", 2, 5, False),
    ],
)
def test_an_amount_that_changes_with_a_phase(
    tmp_path: Path, phase: str, name: str, was: float, now: float, is_named: bool
) -> None:
    """It is named if it explains the phase; turns do not explain that weights come more slowly."""
    seconds = {"generate": 20.0, "update_actor": 10.0, "weight_sync": 8.0}
    training = Played(
        phases=lambda step, _rank: seconds | ({phase: 2.2 * seconds[phase]} if step >= 60 else {}),
        values=lambda step, _rank: {name: noisy(was if step < 60 else now, step, 0.001)},
    )
    player = Player(tmp_path / "run", training)
    player.start()
    player.steps(range(STEPS))
    player.finish()
    (change,) = [finding for finding in facts_of(player.open()).findings if finding.kind == "change"]

    assert phase in change.sentence
    assert (f"together with {name}" in change.sentence) is is_named


def test_a_metric_that_is_asked_for_twice(tmp_path: Path) -> None:
    """Two rules that read one metric both see it."""
    player = Player(tmp_path / "run", Played(values=lambda step, _rank: {"x": float(step)}))
    player.start()
    player.steps(range(3))
    player.finish()
    recorded = RecordedRun(player.open())
    recorded.load(["x", "x"])

    assert recorded.series("x").values.tolist() == [0.0, 1.0, 2.0]


def test_groups_that_the_trainer_counts_as_dropped(tmp_path: Path) -> None:
    """By counts of the same things; few are not worth a line, and a ratio is not a count."""
    many = lambda _step: {"rollout/groups_dropped": 16.0, "rollout/groups_trained": 8.0}  # noqa: E731
    few = lambda _step: {"rollout/groups_dropped": 1.0, "rollout/groups_trained": 8.0}  # noqa: E731

    assert "67 % were dropped" in said(tmp_path / "a", many)
    assert "were dropped" not in said(tmp_path / "b", few)
