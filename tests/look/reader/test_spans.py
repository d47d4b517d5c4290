"""The spans of a run, as people ask for them first."""

from __future__ import annotations

from pathlib import Path

import otel_rl
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Finished, SpanEnded, SpanStarted, StepEnded, StepStarted
from tests.look.reader.test_reader import archived
from tests.recorder.agent.reducing import S, feed, reducing, started


def test_spans_belong_to_an_attempt(tmp_path: Path) -> None:
    """`spans JOIN rows USING (attempt, step)` finds phases, and each with its own attempt."""
    reducer, items = reducing(), []
    for attempt in (0, 1):
        phase = SpanStarted(attempt + 1, 0, bytes(16), 3, "generate", S, b""), SpanEnded(attempt + 1, 3 * S, b"")
        step = StepStarted(3, 0, b""), *phase, StepEnded(3, (4 + attempt) * S, b"")
        items += feed(reducer, f"rank0.{attempt}", started(attempt=attempt), *step, Finished(6 * S))
    query = """
        SELECT attempt, phase, duration_ns, value FROM spans JOIN rows USING (attempt, step)
        WHERE rows.name = 'time/step' AND phase IS NOT NULL ORDER BY attempt"""
    every = otel_rl.open_run(archived(tmp_path / "run", items), attempts="all").sql(query)
    valid = otel_rl.open_run(tmp_path / "run").sql(query)

    assert [*zip(*(every[name].tolist() for name in every.columns), strict=True)] == [
        (0, "generate", 2 * S, 4.0),
        (1, "generate", 2 * S, 5.0),
    ]
    assert valid["attempt"].tolist() == [1]


def test_the_own_time_of_phases(tmp_path: Path) -> None:
    """The agent writes it: of phases inside of others, of parts, of a phase that ends after its parent, at a death."""
    phases = [("train", "", 1, 9), ("train", "onload", 2, 4), ("reward", "", 5, 11), ("generate", "", 12, 99)]
    records = [
        (begin, SpanStarted(n, 0, bytes(16), 0, name, begin * S, b"", None, None, part))
        for n, (name, part, begin, _) in enumerate(phases, 1)
    ]
    records += [(end, SpanEnded(n, end * S, b"")) for n, (*_, end) in enumerate(phases, 1) if end < 20]
    told = [record for _, record in sorted(records, key=lambda one: one[0])]
    items = feed(reducing(), "rank0", started(), StepStarted(0, 0, b""), *told, Lost(20 * S))
    run = otel_rl.open_run(archived(tmp_path / "run", items))
    own = run.sql("SELECT phase, sum(own_ns) AS own FROM spans WHERE phase IS NOT NULL GROUP BY phase")

    assert dict(zip(own["phase"].tolist(), own["own"].tolist(), strict=True)) == {
        "train": 4 * S,
        "reward": 6 * S,
        "generate": 8 * S,
    }
