"""The last steps of a run, as `now.json` has them."""

from __future__ import annotations

import math
from statistics import median

import msgspec

from otel_rl.export import Ended, Event, Params, Row
from otel_rl.recorder.agent.output.recent import Recent
from otel_rl.recorder.archive.now import Progress
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.reducing import S


def recent(before: Progress | None = None) -> Recent:
    """Return what an agent keeps that was started now."""
    return Recent(Vocabulary("auto"), before or Progress())


def row(number: int, attempt: int = 0, seconds: float = 2.0, **values: float) -> Row:
    return Row(number, number * S, {"reward": number / 10, "time/step": seconds, **values}, attempt)


def test_steps_are_counted() -> None:
    """First, last and number of steps, the parameters' total, and the values of main metrics."""
    kept = recent()
    kept.add([Params(1, {"trainer.max_steps": 50}), *(row(number) for number in range(5, 15))])
    now = kept.progress()

    assert (now.first_step, now.last_step, now.steps, now.total_steps) == (5, 14, 10, 50)
    assert {one.name: one.points[-1] for one in now.curves} == {"reward": (14, 1.4), "time/step": (14, 2.0)}


def test_names_that_nobody_knows() -> None:
    """If no main metric is among them, the first ones that the trainer logged are shown."""
    kept = recent()
    kept.add([Row(0, 1, {f"odd_{number}": 1.0 for number in range(20)} | {"time/step": 1.0})])

    assert [one.name for one in kept.progress().curves] == [*(f"odd_{number}" for number in range(8)), "time/step"]


def test_a_resumed_run() -> None:
    """Steps that the last attempt repeats count once, and the points of the earlier attempt are gone."""
    kept = recent()
    kept.add([row(number) for number in range(10)])
    kept.add([Ended(1, 0, "lost", "rank 0: lost")])
    assert kept.progress().outcome == "lost"

    kept.add([row(number, 1, extra=1.0) for number in range(6, 8)])
    now = kept.progress()
    (reward,) = (one for one in now.curves if one.name == "reward")

    assert (now.steps, now.last_step, now.resumed_at, now.outcome, now.error) == (8, 7, (6,), None, "")
    assert [place for place, _ in reward.points] == list(range(8))


def test_an_agent_that_is_started_again() -> None:
    """It goes on from the file of the one before, and does not count a row twice that is made again."""
    first = recent()
    first.add([row(number) for number in range(10)])
    first.add([Event("rl.checkpoint", 1, {"path": "/ckpt"})])
    saved = msgspec.json.decode(msgspec.json.encode(first.progress()), type=Progress)
    second = recent(saved)
    second.add([row(9), row(10)])
    now = second.progress()

    assert (now.steps, now.last_step) == (11, 10)
    assert [place for place, _ in now.curves[0].points] == list(range(11))
    assert [event.name for event in now.events] == ["rl.checkpoint"]


def test_values_that_are_not_finite() -> None:
    """They are points without a value, which JSON can have."""
    kept = recent()
    kept.add([row(0, loss=math.nan), row(1, loss=math.inf), row(2, loss=0.5)])
    now = msgspec.json.decode(msgspec.json.encode(kept.progress()), type=Progress)
    (loss,) = (one for one in now.curves if one.name == "loss")

    assert loss.points == ((0, None), (1, None), (2, 0.5))


def test_the_time_of_the_last_steps() -> None:
    """It is the median of the last 20 steps, to the last digit, also for an agent that is started again."""
    kept = recent()
    kept.add([row(number, seconds=9.0) for number in range(30)])
    seconds = [2.0 + number / 7 for number in range(20)]
    kept.add([row(30 + number, seconds=time) for number, time in enumerate(seconds)])
    again = Recent(Vocabulary("auto"), kept.progress(), kept.last_rows)
    again.add([row(50, seconds=8.0)])

    assert kept.progress().recent_step_seconds == median(seconds)
    assert again.progress().recent_step_seconds == median([*seconds[1:], 8.0])


def test_a_step_that_closed_before_it_ended() -> None:
    """Its time comes with a late row, and counts."""
    kept = recent()
    kept.add([row(0), Row(1, 1 * S, {"reward": 1.0}), Row(1, 9 * S, {"time/step": 8.0}, late=True, part=1)])

    assert kept.progress().recent_step_seconds == 5.0


def test_a_rank_that_comes_late() -> None:
    """A step takes until its slowest rank has left it; one that a process died in has no time."""
    kept = recent()
    kept.add([*(row(number) for number in range(3)), Row(1, 9 * S, {"time/step": 8.0}, late=True, part=1)])
    kept.add([Row(2, 9 * S, {}, late=True, part=1, partial=True), Row(3, 9 * S, {"time/step": 1.0}, partial=True)])

    assert [(row.step, row.seconds) for row in kept.last_rows] == [(0, 2.0), (1, 8.0)]
    assert kept.progress().last_step == 3


def test_memory_is_bounded() -> None:
    """However many steps and names a run has."""
    kept = recent()
    kept.add([row(number, **{f"m{number}": 1.0}) for number in range(3000)])
    now = kept.progress()

    assert max(len(one.points) for one in now.curves) == 60
    assert len(msgspec.json.encode(now)) < 10_000
