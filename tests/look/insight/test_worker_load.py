"""Workers of a role that make more of the trajectories than before."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_rl
from otel_rl import semconv
from otel_rl.export import Span
from otel_rl.look.insight.findings.worker_load import moved_work
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.insight.played import BEGAN, S

STEPS, CHANGE = 20, 10


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ((4, 4), (1, 7), "rollout 1 makes 88 % of the trajectories (50 % before)"),
        ((4, 4), (4, 4), ""),
        ((1, 7), (1, 7), ""),
        ((7, 1), (4, 4), ""),
        ((8, 0), (4, 4), ""),
    ],
)
def test_sessions_that_stay_on_one_worker(
    tmp_path: Path, before: tuple[int, int], after: tuple[int, int], sentence: str
) -> None:
    """The worker that has more than its share, and more than before, is named; shares that stay are not news."""
    (tmp_path / "run.json").write_text("{}")
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    for step in range(STEPS):
        begins = BEGAN + step * 10 * S
        of_step = {semconv.LOOP_ITERATION: step, semconv.RUN_ATTEMPT: 0}
        writer.add(Span(semconv.SPAN_LOOP, f"{step + 1:032x}", f"{step + 1:016x}", "", begins, begins + 9 * S, of_step))
        for rank, count in enumerate(before if step < CHANGE else after):
            for number in range(count):
                who = {semconv.ROLE: "rollout", semconv.RANK: rank, semconv.RUN_ATTEMPT: 0}
                ids = f"{1 + number + 16 * rank + 64 * step:032x}", f"{1 + number + 16 * rank + 64 * step:016x}"
                writer.add(Span(semconv.SPAN_TRAJECTORY, *ids, "", begins + S, begins + 2 * S, who))
    writer.save(seals=True)
    recorded = RecordedRun(otel_rl.open_run(tmp_path))

    assert moved_work(recorded, (0, CHANGE - 1), (CHANGE, STEPS - 1)) == sentence
