"""Staleness, what was dropped, and its bias, in numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.analyses.consumption import Consumption
from otel_rl.recorder.trainer.tickets import consumed
from tests.recorder.agent.reducing import reducing, row_of


def told(*tickets: dict[str, object], version: int | None = 10, outcome: str = "trained") -> list[object]:
    return list(consumed(tickets, 0, 1, version, outcome, pytest.fail))


def ticket(version: object, tokens: object, reward: float | None = None) -> dict[str, object]:
    return {"policy_version": version, "tokens": tokens, "reward": reward}


def test_staleness_is_weighted_by_tokens() -> None:
    """90 tokens are of this version, 10 are two versions old; a trajectory may have several versions."""
    values = Consumption().add(told(ticket(10, 60), ticket([8, 10], [10, 30])))  # type: ignore[arg-type]

    assert values == {
        "trajectories/trained": 2,
        "trajectories/staleness/mean": 0.2,
        "trajectories/staleness/max": 2.0,
        "trajectories/staleness/p50": 0.0,
        "trajectories/staleness/p95": 2.0,
    }


def test_the_distribution_is_exact() -> None:
    """Tokens by staleness and outcome: each token once."""
    consumption = Consumption()
    consumption.add(told(ticket(10, 60), ticket([8, 10], [10, 30]), ticket(None, 7)))  # type: ignore[arg-type]
    consumption.add(told(ticket(11, 500), ticket(0, 5), version=20, outcome="stale"))  # type: ignore[arg-type]
    points = {(point.metric, *(value for _, value in point.attributes)): point.value for point in consumption.points()}

    assert points == {
        ("rl.trajectory.count", "trained"): 3,
        ("rl.trajectory.count", "stale"): 2,
        ("rl.trajectory.tokens", "0", "trained"): 90,
        ("rl.trajectory.tokens", "2", "trained"): 10,
        ("rl.trajectory.tokens", "unknown", "trained"): 7,
        ("rl.trajectory.tokens", "9", "stale"): 500,
        ("rl.trajectory.tokens", "16+", "stale"): 5,
    }


def test_where_tokens_are_not_told_each_trajectory_counts_once() -> None:
    """The mean is then over trajectories."""
    values = Consumption().add(told({"policy_version": 10}, {"policy_version": 7}))  # type: ignore[arg-type]

    assert values["trajectories/staleness/mean"] == 1.5


def test_bias() -> None:
    """Where long answers are dropped, and better ones, both differences are above zero."""
    records = told(ticket(10, 100, 0.25), ticket(10, 200, 0.75))
    records += told(ticket(9, 900, 1.0), ticket(9, 800), outcome="too_long")
    values = Consumption().add(records)  # type: ignore[arg-type]

    assert values["trajectories/bias/length"] == 850 - 150
    assert values["trajectories/bias/reward"] == 1.0 - 0.5
    assert values["trajectories/too_long"] == 2


def test_reasons_do_not_make_endless_series() -> None:
    """The first sixteen reasons that contain a number have their own series."""
    consumption = Consumption()
    for n in range(100):
        consumption.add(told(ticket(9, 1), outcome=f"older than {n}"))  # type: ignore[arg-type]
    counts = [point for point in consumption.points() if point.metric == "rl.trajectory.count"]

    assert len(counts) == 17
    assert sum(point.value for point in counts) == 100


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1000)), min_size=1), st.integers(1, 5))
def test_nothing_depends_on_how_it_was_told(parts: list[tuple[int, int]], ranks: int) -> None:
    """However the trajectories were spread over ranks, and whatever their order."""
    tickets = [ticket(40 - age, tokens) for age, tokens in parts]
    whole = Consumption().add(consumed(tickets, 0, 1, 40, "trained", pytest.fail))
    spread = [record for n in range(ranks) for record in consumed(tickets[n::ranks], 0, 1, 40, "trained", pytest.fail)]

    assert Consumption().add(spread) == pytest.approx(whole)
    assert Consumption().add(reversed(spread)) == pytest.approx(whole)


def test_it_is_in_the_row() -> None:
    """Pooled over the ranks that trained on them."""
    ranks = [consumed([ticket(10 - n, tokens)], 0, 1, 10, "trained", pytest.fail) for n, tokens in ((0, 100), (1, 300))]
    values = row_of(reducing(), [[*records] for records in ranks])

    assert (values["trajectories/staleness/mean"], values["trajectories/trained"]) == (0.75, 2)
