"""Idleness and energy of GPUs, by the phase that the trainer was in."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.agent.hardware.measurement import Point

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.agent.hardware.measurement import Measurement

_SAMPLES = 30


class GpuUsage:
    """Relates measurements of GPUs to phases and steps."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=_SAMPLES))
        self._present: dict[str, set[str]] = {}
        self._energy: dict[str, float] = {}
        self._base: dict[str, float] = {}
        self._steps = 0
        self._tokens = 0.0

    @property
    def knows_energy(self) -> bool:
        """Whether any GPU measures its energy; otherwise steps need not be reported."""
        return bool(self._energy)

    def step_ended(self, tokens: float) -> None:
        """Record a step, and of how many tokens were trained on in it."""
        self._steps += 1
        self._tokens += tokens

    def measured(self, measurement: Measurement, phase_on: Callable[[str], str]) -> None:
        """Add the points of GPUs; `phase_on` returns the phase that a device is in, empty outside of any."""
        present = self._present[measurement.probe] = set()
        for point in measurement.points:
            device = str(dict(point.attributes).get(semconv.HW_ID, ""))
            present.add(device)
            if point.metric == semconv.METRIC_HW_GPU_UTILIZATION and (phase := phase_on(device)):
                self._idle[device, phase].append(1 - point.value)
            elif point.metric == semconv.METRIC_HW_ENERGY:
                self._energy[device] = point.value
                self._base.setdefault(device, point.value)

    def idle(self) -> list[Point]:
        """Return the share of the last measurements in a phase in which each GPU was idle; not for lost GPUs."""
        present = set().union(*self._present.values())
        return [
            Point(
                semconv.METRIC_PHASE_GPU_IDLE_FRACTION,
                sum(shares) / len(shares),
                ((semconv.HW_ID, device), (semconv.PHASE, phase)),
            )
            for (device, phase), shares in self._idle.items()
            if device in present
        ]

    def energy(self) -> list[Point]:
        """Return joules for each step and token since the last call that had an answer; nothing before a step ended."""
        joules = sum(now - self._base[device] for device, now in self._energy.items())
        if not self._steps or joules <= 0:
            return []
        found = [Point(semconv.METRIC_STEP_ENERGY, joules / self._steps)]
        if self._tokens:
            found.append(Point(semconv.METRIC_TOKEN_ENERGY, joules / self._tokens))
        self._base, self._steps, self._tokens = dict(self._energy), 0, 0.0
        return found
