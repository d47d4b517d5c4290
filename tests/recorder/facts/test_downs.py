"""The processes of a run that ended badly, by the reports of agents that do not follow one another's processes."""

from __future__ import annotations

import pytest

from otel_rl.export import DeathCause, Outcome
from otel_rl.recorder.facts.signs import KnownProcess
from otel_rl.recorder.facts.standing import downs, outcome_of

_S = 1_000_000_000


def rank(outcome: Outcome | None, ended_s: int) -> KnownProcess:
    return KnownProcess(0, "", 0, "node1", ended_s * _S, outcome)


def rollout(outcome: Outcome, ended_s: int, cause: DeathCause = "") -> KnownProcess:
    return KnownProcess(0, "rollout", 0, "node2", ended_s * _S, outcome, cause=cause)


@pytest.mark.parametrize("trainer", [rank("finished", 9), rank("finished", 13)])
@pytest.mark.parametrize(
    "worker",
    [rollout("lost", 10, "signal"), rollout("lost", 10), rollout("failed", 10, "exit"), rollout("cancelled", 10)],
)
def test_a_worker_that_is_stopped_at_the_end_of_the_run(trainer: KnownProcess, worker: KnownProcess) -> None:
    """The agent of its machine knows no rank, and says that it died; the run has finished, and nobody is accused."""
    assert downs([trainer, worker]) == []


@pytest.mark.parametrize("trainer", [rank(None, 60), rank("finished", 60)])
def test_a_worker_that_dies_before(trainer: KnownProcess) -> None:
    """It is named, also after the run has finished without it."""
    worker = rollout("lost", 10, "signal")

    assert downs([trainer, worker]) == [worker]
    assert outcome_of([trainer, worker]) == "finished"


def test_a_worker_that_died_of_a_fault_at_the_end() -> None:
    """Its creator sends no SIGSEGV, and does not use up its memory."""
    workers = [rollout("crashed", 10), rollout("lost", 10, "oom_kill"), rollout("failed", 10)]

    assert all(downs([rank("finished", 9), worker]) == [worker] for worker in workers)


def test_a_pool_that_is_stopped_while_the_run_goes_on() -> None:
    """SIGTERM is how a pool of workers ends; it is not what a run lacks."""
    assert downs([rank(None, 60), rollout("cancelled", 10)]) == []


def test_workers_alone() -> None:
    """Without ranks, the run is what its workers are."""
    assert outcome_of([rollout("cancelled", 10)]) == "cancelled"
