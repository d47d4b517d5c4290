"""Workers of a role that make more of the trajectories than before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import otel_rl
from otel_rl import semconv
from otel_rl.export import Row, Span
from otel_rl.look.insight.findings.engines import engines
from otel_rl.look.insight.findings.worker_load import moved_work
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.insight.played import BEGAN, S

STEPS, CHANGE = 20, 10
MOVED = "rollout 1 makes 88 % of the trajectories (50 % before)"


def recorded(
    directory: Path, counts: Callable[[int], Sequence[int]], seconds: Callable[[int, int], float] = lambda *_: 1.0
) -> RecordedRun:
    """Return a run whose workers begin so many trajectories in a step, each of which takes so long."""
    directory.mkdir(exist_ok=True)
    (directory / "run.json").write_text("{}")
    writer = ArchiveWriter(directory / "archive" / "local", 1 << 60)
    for step in range(STEPS):
        begins = BEGAN + step * 10 * S
        of_step = {semconv.LOOP_ITERATION: step, semconv.RUN_ATTEMPT: 0}
        writer.add(Row(step, begins + 9 * S, {"reward": 0.5}, 0))
        writer.add(Span(semconv.SPAN_LOOP, f"{step + 1:032x}", f"{step + 1:016x}", "", begins, begins + 9 * S, of_step))
        for rank, count in enumerate(counts(step)):
            for number in range(count):
                who = {semconv.ROLE: "rollout", semconv.RANK: rank, semconv.RUN_ATTEMPT: 0}
                place = 1 + number + 64 * rank + 1024 * step
                ends = begins + S + round(seconds(step, rank) * S)
                writer.add(Span(semconv.SPAN_TRAJECTORY, f"{place:032x}", f"{place:016x}", "", begins + S, ends, who))
    writer.save(seals=True)
    return RecordedRun(otel_rl.open_run(directory))


def moved(run: RecordedRun) -> str:
    """Return which worker has more since the change."""
    return moved_work(run, (0, CHANGE - 1), (CHANGE, STEPS - 1))


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ((4, 4), (1, 7), MOVED),
        ((4, 4), (4, 4), ""),
        ((1, 7), (1, 7), ""),
        ((7, 1), (4, 4), ""),
        ((8, 0), (4, 4), ""),
        ((4, 4), (0, 8), ""),
    ],
)
def test_sessions_that_stay_on_one_worker(
    tmp_path: Path, before: tuple[int, int], after: tuple[int, int], sentence: str
) -> None:
    """The worker that has more than its share, and more than before, is named; shares that stay are not news.

    Nothing is said of a worker that gets none at all: it may be stuck.
    """
    assert moved(recorded(tmp_path, lambda step: before if step < CHANGE else after)) == sentence


@pytest.mark.parametrize(
    ("slow", "sentence"),
    [((), MOVED), ((1,), MOVED), ((0, 1), MOVED), ((0,), "")],
    ids=["none", "named", "both", "other"],
)
def test_workers_that_share_a_queue(tmp_path: Path, slow: tuple[int, ...], sentence: str) -> None:
    """A worker that is slow itself leaves its work to the other one, which is not to blame; nor is routing."""
    run = recorded(
        tmp_path,
        lambda step: (4, 4) if step < CHANGE else (1, 7),
        lambda step, rank: 5.0 if step >= CHANGE and rank in slow else 1.0,
    )

    assert moved(run) == sentence


@pytest.mark.parametrize("workers", [2, 3, 8])
@pytest.mark.parametrize("together", [1, 8], ids=["alone", "in groups"])
def test_requests_that_are_spread_at_random(tmp_path: Path, workers: int, together: int) -> None:
    """Shares of 20 trajectories or more differ by chance, and more so if those of a prompt go to one worker."""
    chance = np.random.default_rng(workers)
    fair = np.full(workers, 1 / workers)

    def counts(_step: int) -> list[int]:
        return [together * int(number) for number in chance.multinomial(2, fair)]

    assert [moved(recorded(tmp_path / f"{draw}", counts)) for draw in range(20)] == [""] * 20


@pytest.mark.parametrize(
    ("seconds", "sentences"), [(1.0, ["Rollout 0 generated 160 trajectories, rollout 1 20: routing."]), (8.0, [])]
)
def test_a_worker_that_generates_little(tmp_path: Path, seconds: float, sentences: list[str]) -> None:
    """It is routing if the worker is idle, not if it works as long as the other one."""
    run = recorded(tmp_path, lambda _: (8, 1), lambda _, rank: seconds if rank else 1.0)

    assert [finding.sentence for finding in engines(run)] == sentences
