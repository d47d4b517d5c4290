"""Trajectories that steps trained on or dropped, as the recorder has them."""

from __future__ import annotations

import pytest

from otel_rl.recorder.agent.steps.trajectories import links, of_step
from otel_rl.recorder.journal.records import StepStarted
from otel_rl.recorder.trainer.tickets import consumed
from tests.recorder.agent.reducing import feed, reducing, started


def told(*tickets: dict[str, object], version: int | None = 10, outcome: str = "trained") -> list[object]:
    return list(consumed(tickets, 0, 1, version, outcome, pytest.fail))


def ticket(version: object, tokens: object, reward: float | None = None) -> dict[str, object]:
    return {"policy_version": version, "tokens": tokens, "reward": reward}


def test_what_a_process_has_dropped() -> None:
    """It is counted by reason until the process trains on some, or begins another step; reasons are bounded."""
    reducer = reducing()
    feed(reducer, "rank0", started(), StepStarted(0, 0, b""))
    journal = reducer.state.journals["rank0"]
    feed(reducer, "rank0", *told(ticket(1, 1), ticket(1, 1), outcome="stale"))
    feed(reducer, "rank0", *told(ticket(1, 1), outcome="aborted"), *told(ticket(1, 1), outcome="stale"))
    assert (journal.dropped, journal.dropped_at) == ({"stale": 3, "aborted": 1}, 1)
    feed(reducer, "rank0", *told(ticket(1, 1)))
    assert journal.dropped == {}
    for n in range(40):
        feed(reducer, "rank0", *told(ticket(1, 1), outcome=f"sample {n}"))
    assert (len(journal.dropped), journal.dropped["other"]) == (17, 24)
    feed(reducer, "rank0", StepStarted(1, 2, b""))
    assert journal.dropped == {}


def test_links_say_what_is_known() -> None:
    """Of trajectories that have traces."""
    with_trace = ticket([8, 9], [1, 2], 0.5) | {"traceparent": f"00-{1:032x}-{2:016x}-01"}
    records = told(with_trace, ticket(9, 1))
    (link,) = links(records)  # type: ignore[arg-type]

    assert (int(link.trace_id, 16), int(link.span_id, 16)) == (1, 2)
    assert link.attributes == {
        "rl.trajectory.outcome": "trained",
        "rl.trajectory.tokens": 3,
        "rl.trajectory.reward": 0.5,
        "rl.policy.version": 8,
    }
    assert of_step(records) == {"rl.trajectories.trained": 2, "rl.policy.version": 10}  # type: ignore[arg-type]
