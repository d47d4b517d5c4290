"""Values that are logged inside a refused step never end up in the row of another step."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from otel_rl import Run
from otel_rl.recorder.journal.records import Consumed, Happened, Logged, Observed, Record, Refusals, Tabled
from tests.faults.interrupting import each_line

RecordsOf = Callable[..., list[Record]]


def logs(run: Run) -> None:
    """Record something in each way that belongs to a step: six records."""
    run.log({"loss": 9.0, "reward": [1.0, 2.0]})
    run.table("table", {"a": [1]})
    run.completions(["p"], ["c"])
    run.trained([{"tokens": 1, "policy_version": 1}])
    run.queue("q", depth=1)


def steps_of(records: list[Record]) -> list[int]:
    return [one.step for one in records if isinstance(one, Logged | Observed | Tabled | Consumed)]


def refused(records: list[Record]) -> int:
    return [one.counts for one in records if isinstance(one, Refusals)][-1]["step"]


@pytest.mark.parametrize("number", [5, 3, -1, "five", 1 << 70])
def test_logged_in_a_refused_step(recording: Run, records_of: RecordsOf, number: object) -> None:
    """A step that is repeated, goes backwards or has no number: refused with all that is logged inside."""
    with recording.step(5):
        recording.log({"loss": 1.0})
    with recording.step(number):  # type: ignore[arg-type]
        logs(recording)
        recording.event("happened")
    recording.log({"after": 1.0})
    records = records_of(recording)
    (event,) = (one for one in records if isinstance(one, Happened))

    assert steps_of(records) == [5, 5]
    assert refused(records) == 1 + 5
    assert event.step is None


def test_inside_a_step(recording: Run, records_of: RecordsOf) -> None:
    """Before and after a refused step, the step around it takes what is logged; so it does from another thread."""
    with recording.step(5):
        recording.log({"loss": 1.0})
        with recording.step(6), recording.step(7):
            logs(recording)
            thread = threading.Thread(target=recording.log, args=({"from": 2.0},))
            thread.start()
            thread.join()
        recording.log({"loss": 3.0})
    records = records_of(recording)

    assert [one.values for one in records if isinstance(one, Logged)] == [{"loss": 1.0}, {"from": 2.0}, {"loss": 3.0}]
    assert steps_of(records) == [5, 5, 5]


def test_from_another_thread(recording: Run, records_of: RecordsOf) -> None:
    """Where no step is open, a thread that works for the refused one is refused too."""
    with recording.step(5):
        pass
    with recording.step(5):
        thread = threading.Thread(target=logs, args=(recording,))
        thread.start()
        thread.join()

    assert steps_of(records_of(recording)) == []


def test_with_a_step_of_its_own(recording: Run, records_of: RecordsOf) -> None:
    """A call that names its step is recorded there."""
    with recording.step(-1):
        recording.log({"loss": 1.0}, step=7)

    assert steps_of(records_of(recording)) == [7]


def test_a_step_that_is_refused_when_it_is_entered(recording: Run, records_of: RecordsOf) -> None:
    """It was made before another one began."""
    early, late = recording.step(4), recording.step(5)
    with late:
        pass
    with early:
        recording.log({"loss": 9.0})
    recording.log({"after": 1.0})

    assert [one.values for one in records_of(recording) if isinstance(one, Logged)] == [{"after": 1.0}]


def test_one_that_is_entered_by_hand_and_never_left(recording: Run, records_of: RecordsOf) -> None:
    """It lasts until the next step begins."""
    recording.step(-1).__enter__()
    recording.log({"loss": 9.0})
    with recording.step(0):
        recording.log({"loss": 0.0})

    assert steps_of(records_of(recording)) == [0]


def test_one_that_an_interrupt_leaves(recording: Run, records_of: RecordsOf) -> None:
    """At whatever line of otel-rl the interrupt comes, what is logged after the block is in the last step."""

    def refused() -> None:
        with recording.step(-1):
            pass

    with recording.step(0):
        pass
    interrupts = 0
    for _ in each_line(refused):
        recording.log({"loss": 1.0})
        interrupts += 1

    assert interrupts > 10
    assert steps_of(records_of(recording)) == [0] * interrupts
