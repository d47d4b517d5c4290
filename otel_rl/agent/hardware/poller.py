"""Measures in threads, so that a driver that hangs holds up nobody."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.agent.hardware.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_rl.agent.hardware.measurement import Point, Probe

logger = logging.getLogger(__name__)
_QUEUE = 4096
_LEAST_GPU_S = 1.0  # each question holds a lock of the driver, which kernels wait for too
_SLOW_S = 5.0
_LOOK_EVERY_S = 60.0
_STOP_WITHIN_S = 1.0


class Watched(NamedTuple):
    """A trainer process.

    Attributes:
        pid: Its id in the agent's PID namespace, as far as that is the same.
        rank: Its rank.
        role: Its role, empty for an ordinary rank.
        visible_devices: Its `CUDA_VISIBLE_DEVICES`; `None` where it is not set.
        started_unix_nano: When it began to record.
    """

    pid: int
    rank: int
    role: str
    visible_devices: str | None
    started_unix_nano: int


class Poller:
    """Measures the host, the trainer's processes, the cgroup and each GPU every so many seconds.

    Each of them is measured in a thread of its own: a call that hangs holds up its own device only, and is
    counted. GPUs are looked for again every minute.

    Args:
        interval: Seconds; GPUs are not asked more often than every second.
        io: Whether PCIe throughput is measured too.
        now: The clock, in Unix nanoseconds.
    """

    def __init__(self, interval: float, *, io: bool = False, now: Callable[[], int] = time.time_ns) -> None:
        self._interval = interval
        self._io = io
        self._now = now
        self._samples: deque[Measurement] = deque()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._watched: Sequence[Watched] = ()
        self._polls: list[_Poll] = []
        self._known: set[str] = set()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to measure."""
        from otel_rl.agent.hardware import amd, cgroup, host, nvml, processes

        self._poll(host.Host(self._now), self._interval)
        self._poll(processes.Processes(self.watched, self._now), self._interval)
        if (own := cgroup.find()) is not None:
            self._poll(own, self._interval)
        for name, look in (("nvml", lambda: nvml.devices(self.watched, io=self._io)), ("amd", amd.devices)):
            threading.Thread(target=self._look_for, args=(name, look), name=f"otel-rl-{name}", daemon=True).start()

    def watch(self, processes: Sequence[Watched]) -> None:
        """Take note of the trainer processes that live; the agent says it again and again."""
        self._watched = processes

    def watched(self) -> Sequence[Watched]:
        """Return the trainer processes that live."""
        return self._watched

    def take(self) -> list[Measurement]:
        """Return what was measured since the last call; never waits."""
        for poll in self._polls:
            if poll.is_slow(time.monotonic()):
                self.fail(poll.source.name, "timeout")
        found: list[Measurement] = []
        while self._samples:
            found.append(self._samples.popleft())
        return found

    @property
    def failures(self) -> dict[tuple[str, str], int]:
        """How often a source could not be measured, by its name and the reason."""
        return dict(self._failures)

    def stop(self) -> None:
        """End all threads that can be ended; those that hang end with the process."""
        self._stopped.set()
        deadline = time.monotonic() + _STOP_WITHIN_S
        for poll in self._polls:
            poll.join(max(0.0, deadline - time.monotonic()))

    def add(self, sample: Measurement) -> None:
        """Keep a sample until it is taken; too many are dropped, the oldest first."""
        if len(self._samples) >= _QUEUE:
            self._samples.popleft()
            self._failures["sampler", "queue"] += 1
        self._samples.append(sample)

    def fail(self, source: str, reason: str) -> None:
        """Count a failure; log it the 1st, 10th, 100th … time."""
        self._failures[source, reason] += 1
        count = self._failures[source, reason]
        if str(count).strip("0") == "1":
            logger.warning("%s could not be measured: %s (%d so far)", source, reason, count)

    def _look_for(self, name: str, look: Callable[[], Iterable[Probe]]) -> None:
        """Find devices, and begin to measure those that are new."""
        while True:
            try:
                for source in look():
                    if source.name not in self._known:
                        self._known.add(source.name)
                        self._poll(source, max(self._interval, _LEAST_GPU_S))
            except Exception as error:
                self.fail(name, type(error).__name__)
            if self._stopped.wait(_LOOK_EVERY_S):
                return

    def _poll(self, source: Probe, interval: float) -> None:
        poll = _Poll(source, interval, self, self._stopped, self._now)
        poll.start()
        self._polls = [*self._polls, poll]  # a new list: another thread may go through the old one


class _Poll(threading.Thread):
    def __init__(
        self, source: Probe, interval: float, sampler: Poller, stopped: threading.Event, now: Callable[[], int]
    ) -> None:
        super().__init__(name=f"otel-rl-{source.name}", daemon=True)
        self.source = source
        self._interval = interval
        self._sampler = sampler
        self._stopped = stopped
        self._now = now
        self._late_at: float | None = None

    def is_slow(self, now: float) -> bool:
        """Tell whether a measurement takes too long, once in each time that would be too long."""
        if self._late_at is None or now < self._late_at:
            return False
        self._late_at = now + max(_SLOW_S, self._interval)
        return True

    def run(self) -> None:
        """Measure until told to stop."""
        while not self._stopped.is_set():
            self._late_at = time.monotonic() + max(_SLOW_S, self._interval)
            points: list[Point] = []
            try:
                points.extend(self.source.read())
            except Exception as error:
                self._sampler.fail(self.source.name, type(error).__name__)
            if points:  # those before the error, too
                self._sampler.add(Measurement(self.source.name, self._now(), tuple(points)))
            self._late_at = None
            if self._stopped.wait(self._interval):
                return
