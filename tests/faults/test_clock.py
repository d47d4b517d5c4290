"""A machine's clock that is set while a run records: no duration is negative, or longer than it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_rl import Run
from otel_rl.recorder.journal.clock import Clock
from otel_rl.recorder.journal.records import Logged, Record, SpanEnded, SpanStarted, StepEnded, StepStarted
from otel_rl.recorder.trainer.current import recorder_of

RecordsOf = Callable[..., list[Record]]

S = 1_000_000_000
HOUR = 3600 * S


class Machine:
    """A machine with a wall clock that somebody sets, and a monotonic one that goes on by a second for each look."""

    def __init__(self) -> None:
        self.passed = 0
        self.set_by = 1_700_000_000 * S

    def wall(self) -> int:
        return self.set_by + self.passed

    def monotonic(self) -> int:
        self.passed += S // 1000
        return self.passed

    def clock(self) -> Clock:
        return Clock(self.wall, self.monotonic)


def durations(records: list[Record]) -> list[float]:
    """Return the seconds of all spans and steps."""
    begun: dict[object, int] = {}
    found = []
    for record in records:
        match record:
            case SpanStarted():
                begun[record.span_id] = record.time
            case StepStarted():
                begun["step", record.step] = record.time
            case SpanEnded():
                found.append((record.time - begun[record.span_id]) / S)
            case StepEnded():
                found.append((record.time - begun["step", record.step]) / S)
    return found


@pytest.mark.parametrize("jump", [-HOUR, HOUR, -2 * S, 2 * S])
def test_a_clock_that_is_set_inside_a_step(recording: Run, records_of: RecordsOf, jump: int) -> None:
    """Phases and steps take what they took, whichever of them were open."""
    machine = Machine()
    recorder_of(recording).clock = machine.clock()
    with recording.phase("epoch"), recording.step(0):
        with recording.phase("generate"):
            machine.set_by += jump
        with recording.phase("reward"):
            pass
    records = records_of(recording)

    assert len(durations(records)) == 4
    assert all(0 < seconds < 0.1 for seconds in durations(records))


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_the_new_time_is_taken_between_steps(recording: Run, records_of: RecordsOf, jump: int) -> None:
    """The first step, phase or value after the jump, outside of any step, has the time that the wall clock shows."""
    machine = Machine()
    recorder_of(recording).clock = machine.clock()
    for n, call in enumerate((lambda: recording.step(7), lambda: recording.phase("load"))):
        machine.set_by += jump
        with call():
            recording.log({"n": float(n)}, step=7)
    machine.set_by += jump
    recording.log({"n": 2.0}, step=8)
    times = [record.time for record in records_of(recording) if isinstance(record, Logged)]

    assert [round((time - machine.wall()) / HOUR) * HOUR for time in times] == [-2 * jump, -jump, 0]


def test_a_phase_in_a_thread_while_the_time_is_taken(recording: Run, records_of: RecordsOf) -> None:
    """A phase that is open elsewhere, while a step follows the wall clock, takes no longer by that."""
    machine = Machine()
    recorder_of(recording).clock = machine.clock()
    elsewhere = recording.phase("rollout").begin()
    machine.set_by -= HOUR
    with recording.step(0):
        pass
    elsewhere.end()

    assert all(0 < seconds < 0.1 for seconds in durations(records_of(recording)))


def test_small_corrections_change_nothing() -> None:
    """What NTP corrects by less than a second moves no timestamp; more than that is followed."""
    machine = Machine()
    clock = machine.clock()
    machine.set_by += S // 2
    assert not clock.catch_up()
    machine.set_by += S
    assert clock.catch_up()
    assert abs(clock.now() - machine.wall()) < S // 100


def test_devices_are_looked_for_after_a_jump(recording: Run) -> None:
    """A clock that was set back by an hour does not keep devices from being looked for during that hour."""
    machine = Machine()
    recorder_of(recording).clock = machine.clock()
    with recording.phase("a"):
        pass
    before = recorder_of(recording).devices.silent_until
    machine.set_by -= HOUR
    with recording.phase("b"):
        pass

    assert recorder_of(recording).devices.silent_until < before
