"""The hardware poller: it measures in threads, so that a driver that hangs blocks nothing else."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from otel_rl.analysis import Measurement
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_rl.analysis import Point, Probe
    from otel_rl.recorder.agent.hardware.processes import TrainerProcess

logger = log_of(__name__)
_QUEUE = 4096  # measurements that wait to be taken
_LEAST_GPU_S = 1.0  # each query holds a lock of the driver, which kernels wait for too
_SLOW_S = 5.0  # after which a measurement counts as failed
_LOOK_EVERY_S = 60.0  # between two looks for new devices
_STOP_WITHIN_S = 1.0


class Poller:
    """Measures the host, the trainer's processes, the cgroup and each GPU every so many seconds.

    Each probe has a thread of its own: a call that hangs blocks only its own device, and is counted. The poller
    looks for new GPUs every minute.

    Args:
        interval: Seconds between two measurements; GPUs are queried at most once per second.
        io: If true, PCIe throughput is measured too.
        now: The clock, in Unix nanoseconds.
    """

    def __init__(self, interval: float, *, io: bool = False, now: Callable[[], int] = time.time_ns) -> None:
        self._interval, self._io = interval, io
        self.now = now
        self.stopped = threading.Event()
        self._measurements: deque[Measurement] = deque()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._watched: Sequence[TrainerProcess] = ()
        self._polls: list[_Poll] = []
        self._known: set[str] = set()

    def start(self) -> None:
        """Start to measure."""
        from otel_rl.recorder.agent.hardware import amd, cgroup, host, nvml, processes

        self._poll(host.Host(), self._interval)
        self._poll(processes.Processes(self.watched, self.now), self._interval)
        if (own := cgroup.find()) is not None:
            self._poll(own, self._interval)
        for name, look in (("nvml", lambda: nvml.devices(self.watched, io=self._io)), ("amd", amd.devices)):
            threading.Thread(target=self._look_for, args=(name, look), name=f"otel-rl-{name}", daemon=True).start()

    def measure(self, probe: Probe) -> None:
        """Measure something else too, from now on."""
        self._poll(probe, self._interval)

    def watch(self, processes: Sequence[TrainerProcess]) -> None:
        """Set the trainer processes that are alive."""
        self._watched = processes

    def watched(self) -> Sequence[TrainerProcess]:
        """Return the trainer processes that live."""
        return self._watched

    def pop(self) -> list[Measurement]:
        """Return the measurements since the last call; this never waits."""
        for poll in self._polls:
            if poll.is_slow(time.monotonic()):
                self.fail(poll.probe.name, "timeout")
                # An empty measurement ends the series: a GPU that hangs would otherwise show its last values for hours
                # (recorder/agent/hardware/test_poller.py).
                poll.measured(())
        measurements: list[Measurement] = []
        while self._measurements:
            measurements.append(self._measurements.popleft())
        return measurements

    @property
    def failures(self) -> dict[tuple[str, str], int]:
        """How often a probe failed, by its name and the reason."""
        return dict(self._failures)

    def stop(self) -> None:
        """End all threads that can be ended; those that hang end with the process."""
        self.stopped.set()
        deadline = time.monotonic() + _STOP_WITHIN_S
        for poll in self._polls:
            poll.join(max(0.0, deadline - time.monotonic()))

    def add(self, measurement: Measurement) -> None:
        """Keep a measurement until it is taken; too many are dropped, the oldest first."""
        if len(self._measurements) >= _QUEUE:
            self._measurements.popleft()
            self._failures["poller", "queue"] += 1
        self._measurements.append(measurement)

    def fail(self, probe: str, reason: str) -> None:
        """Count a failure; log it the 1st, 10th, 100th … time."""
        self._failures[probe, reason] += 1
        count = self._failures[probe, reason]
        if str(count).strip("0") == "1":
            logger.warning("%s could not be measured: %s (%d so far)", probe, reason, count)

    def _look_for(self, name: str, look: Callable[[], Iterable[Probe]]) -> None:
        """Look for devices now and then, and measure the new ones."""
        while True:
            try:
                for probe in look():
                    if probe.name not in self._known:
                        self._known.add(probe.name)
                        self._poll(probe, max(self._interval, _LEAST_GPU_S))
            except Exception as error:
                self.fail(name, type(error).__name__)
            if self.stopped.wait(_LOOK_EVERY_S):
                return

    def _poll(self, probe: Probe, interval: float) -> None:
        poll = _Poll(probe, interval, self)
        poll.start()
        self._polls = [*self._polls, poll]  # a new list: another thread may go through the old one


class _Poll(threading.Thread):
    def __init__(self, probe: Probe, interval: float, poller: Poller) -> None:
        super().__init__(name=f"otel-rl-{probe.name}", daemon=True)
        self.probe, self._interval, self._poller = probe, interval, poller
        self._late_at: float | None = None
        self._had_points = False

    def measured(self, points: Sequence[Point]) -> None:
        """Keep points; the first time that there are none, an empty measurement, which ends their series."""
        if points or self._had_points:
            self._poller.add(Measurement(self.probe.name, self._poller.now(), tuple(points)))
        self._had_points = bool(points)

    def is_slow(self, now: float) -> bool:
        """Return whether a measurement takes too long, once for each timeout."""
        if self._late_at is None or now < self._late_at:
            return False
        self._late_at = now + max(_SLOW_S, self._interval)
        return True

    def run(self) -> None:
        """Measure until the poller stops."""
        while not self._poller.stopped.is_set():
            self._late_at = time.monotonic() + max(_SLOW_S, self._interval)
            points: list[Point] = []
            try:
                points.extend(self.probe.read())
            except Exception as error:
                self._poller.fail(self.probe.name, type(error).__name__)
            self.measured(points)  # those before the error, too
            self._late_at = None
            self._poller.stopped.wait(self._interval)
