"""The hardware poller, with probes of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from otel_rl.analysis import Measurement, Point
from otel_rl.recorder.agent.hardware.poller import Poller
from tests.collector import wait_for


class Counting:
    """A probe that counts; it can fail between two points."""

    def __init__(self, name: str = "counting", *, fails: bool = False) -> None:
        self.name = name
        self.read_times = 0
        self._fails = fails

    def read(self) -> Iterator[Point]:
        self.read_times += 1
        yield Point("system.cpu.utilization", self.read_times)
        if self._fails:
            raise OSError("gone")


class Gone:
    """A probe whose device answers once."""

    name = "gone"

    def __init__(self) -> None:
        self._is_gone = False

    def read(self) -> Iterator[Point]:
        if self._is_gone:
            raise OSError("gone")
        self._is_gone = True
        yield Point("system.cpu.utilization", 1)


class Hanging(Counting):
    """A probe whose device answers once, and then only if it may."""

    def __init__(self) -> None:
        super().__init__("hanging")
        self.answers = threading.Event()

    def read(self) -> Iterator[Point]:
        yield from super().read()
        if self.read_times > 1:
            self.answers.wait()


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller(0.01, now=lambda: 7)
    yield poller
    poller.stop()


def test_what_was_measured_is_taken_once(poller: Poller) -> None:
    """In order, with the time of the clock."""
    poller._poll(Counting(), 0.01)
    found: list[Measurement] = []
    wait_for(lambda: found.extend(poller.pop()) or len(found) >= 3, "nothing is measured")

    assert found[:2] == [Measurement("counting", 7, (Point("system.cpu.utilization", n),)) for n in (1, 2)]


def test_what_was_measured_before_an_error_counts(poller: Poller) -> None:
    """The error is counted, and the probe is tried again."""
    poller._poll(Counting(fails=True), 0.01)
    wait_for(lambda: poller.failures.get(("counting", "OSError"), 0) >= 2, "no failure is counted")

    assert poller.pop()[0].points == (Point("system.cpu.utilization", 1),)


def test_a_device_that_is_gone_is_measured_as_empty_once(poller: Poller) -> None:
    """Its series end; further failures change nothing."""
    poller._poll(Gone(), 0.01)
    wait_for(lambda: poller.failures.get(("gone", "OSError"), 0) >= 3, "no failure is counted")

    assert [len(measurement.points) for measurement in poller.pop()] == [1, 0]


def test_a_device_that_hangs_is_measured_as_empty_once(poller: Poller) -> None:
    """Its last values are not those of now; it is measured again if it answers."""
    hanging = Hanging()
    poller._poll(hanging, 0.01)
    wait_for(lambda: hanging.read_times == 2, "it is not measured twice")
    before = poller.pop()
    poller._polls[0]._late_at = 0.0  # as if time had passed
    after = poller.pop()
    hanging.answers.set()

    assert [len(measurement.points) for measurement in (*before, *after, *poller.pop())][:2] == [1, 0]


def test_gpus_are_not_asked_more_often_than_every_second(poller: Poller) -> None:
    """Whatever interval is asked for: each question holds a lock of the driver."""
    thread = threading.Thread(target=poller._look_for, args=("nvml", lambda: [Counting("nvml/GPU-1")]), daemon=True)
    thread.start()
    wait_for(lambda: poller._polls, "no device is found")

    assert poller._polls[0]._interval == 1.0


def test_nobody_takes_what_is_measured(poller: Poller) -> None:
    """It fills no memory: the oldest is dropped and counted."""
    for n in range(5000):
        poller.add(Measurement("host", n, ()))

    assert poller.failures == {("poller", "queue"): 5000 - 4096}
    assert poller.pop()[0].time == 5000 - 4096
