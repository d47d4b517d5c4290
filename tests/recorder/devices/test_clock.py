"""Phases by the clock of a device that has a queue of its own."""

from __future__ import annotations

import math

import pytest

from otel_rl.recorder.devices.clock import DeviceClock, Measured
from tests.recorder.devices.gpus import Queue


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def clock(queue: Queue) -> DeviceClock:
    return DeviceClock(queue.new_mark, queue.is_capturing)


def test_a_phase_is_timed_by_the_device(queue: Queue, clock: DeviceClock) -> None:
    """From the moment when the device passes its first mark to the one when it passes its last."""
    start = clock.begin()
    clock.end((3, 7), start)
    queue.work(100)
    queue.work(250)

    assert clock.arrived() == [Measured((3, 7), 0.25, 0.0)]


def test_nothing_is_read_before_the_device_has_passed_it(queue: Queue, clock: DeviceClock) -> None:
    """The mark itself fails where it is read too early; until then there is just nothing."""
    clock.end((None, 7), clock.begin())
    before = clock.arrived()
    queue.work(1)
    half_way = clock.arrived()
    queue.work(1)

    assert (before, half_way) == ([], [])
    assert [one.key for one in clock.arrived()] == [(None, 7)]


def test_each_step_is_an_anchor(queue: Queue, clock: DeviceClock) -> None:
    """Offsets count from the mark at the beginning of the phase's own step."""
    found = []
    for step in range(2):
        clock.begin_step()
        clock.end((step, 1), clock.begin())
        queue.work(1000)
        queue.work(20 * (step + 1))
        queue.work(5)
        found += clock.arrived()

    assert found == [Measured((0, 1), 0.005, 0.02), Measured((1, 1), 0.005, 0.04)]


def test_a_phase_of_the_step_before_keeps_its_anchor(queue: Queue, clock: DeviceClock) -> None:
    """The device may be a step behind."""
    clock.begin_step()
    clock.end((0, 1), clock.begin())
    clock.begin_step()
    queue.work(10)
    queue.work(10)
    queue.work(10)
    queue.work(10)

    assert clock.arrived() == [Measured((0, 1), 0.01, 0.01)]


def test_marks_are_used_again(queue: Queue) -> None:
    """A thousand phases need no more marks than are waiting at a time."""
    made = []

    def new_mark() -> object:
        made.append(queue.new_mark())
        return made[-1]

    clock = DeviceClock(new_mark, queue.is_capturing)  # type: ignore[arg-type]
    for n in range(1000):
        clock.end((None, n), clock.begin())
        queue.work(1)
        queue.work(1)
        clock.arrived()

    assert len(made) == 2


def test_no_mark_gets_into_a_graph(queue: Queue, clock: DeviceClock) -> None:
    """While a graph is captured, phases are not timed."""
    begun_before = clock.begin()
    queue.captures = True

    assert clock.begin() is None
    assert not clock.end((None, 1), begun_before)
    assert clock.dropped == 1


def test_two_ends_on_two_devices_are_counted() -> None:
    """The driver cannot tell the time between them; what waits for it hears that there is none."""

    class Elsewhere(Queue):
        def new_mark(self):
            mark = super().new_mark()
            mark.elapsed_time = self.refuse
            return mark

        def refuse(self, end):
            raise ValueError("events of two devices")

    queue = Elsewhere()
    clock = DeviceClock(queue.new_mark, queue.is_capturing)
    clock.end((0, 1), clock.begin())
    queue.work(1)
    queue.work(1)
    (found,) = clock.arrived()

    assert math.isnan(found.seconds)
    assert clock.dropped == 1


def test_a_device_that_hangs_fills_no_memory(clock: DeviceClock) -> None:
    """Beyond some thousand phases that nobody passes, phases are not timed, and counted."""
    for n in range(5000):
        clock.end((None, n), clock.begin())

    assert clock.dropped == 5000 - 4096
