"""The current state of the run: the attempt, its ranks, and the phase that each process is in."""

from __future__ import annotations

from otel_rl.recorder.agent.output import presence
from otel_rl.recorder.agent.steps.state import Journal, OpenPhase
from otel_rl.recorder.journal.records import SpanStarted, Started
from otel_rl.semconv.vocabulary import Vocabulary

_S = 1_000_000_000


def journal(rank: int = 0, *, attempt: int = 0, role: str = "", over: bool = False, phase: str = "") -> Journal:
    """Return what is known of a process, in a phase that began in the third second."""
    started = Started("run", attempt, rank, 2, 2, role, 1, "host", 4096, (attempt + 1) * _S)
    found = Journal(started, over=over)
    if phase:
        found.phases = {7: OpenPhase(phase)}
        found.spans = {7: SpanStarted(7, 0, b"t" * 16, 0, phase, 3 * _S, b"")}
    return found


def shown(journals: list[Journal], dialect: str = "toyrl") -> dict[tuple[object, ...], float]:
    """Return the points by metric and attributes, in the tenth second."""
    points = presence.points(journals, Vocabulary(dialect), 10 * _S)
    return {(point.metric, *(value for _, value in point.attributes)): point.value for point in points}


def test_the_attempt_that_runs() -> None:
    """The last one, with whose names the trainer uses, when it began, and how many ranks it has and should have."""
    found = shown([journal(over=True), journal(attempt=1), journal(1, attempt=1, over=True)])

    assert found == {
        ("rl.run.info", "toyrl", 1): 1,
        ("rl.run.started.timestamp",): 2.0,
        ("rl.run.ranks", "expected"): 2,
        ("rl.run.ranks", "alive"): 1,
    }


def test_open_phases() -> None:
    """Under canonical names, for each rank and role; not for a process that has ended."""
    found = shown([journal(phase="gen"), journal(1, phase="gen", over=True), journal(role="reward", phase="score")])

    assert {key: value for key, value in found.items() if key[0] == "rl.phase.open.time"} == {
        ("rl.phase.open.time", "generate", 0): 7.0,
        ("rl.phase.open.time", "score", 0, "reward"): 7.0,
    }


def test_an_unknown_framework() -> None:
    """Says so, so that it can be chosen."""
    assert ("rl.run.info", "unknown", 0) in shown([journal()], "auto")


def test_before_any_process() -> None:
    """There is nothing."""
    assert shown([]) == {}
