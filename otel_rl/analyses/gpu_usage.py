"""Idleness and energy of GPUs, by the phase that the trainer was in."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.analysis import Analysis, Point
from otel_rl.export import Row
from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.analysis import Basis, Measurement
    from otel_rl.export import Item
    from otel_rl.recorder.agent.steps.state import Journal

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
        points = [Point(semconv.METRIC_STEP_ENERGY, joules / self._steps)]
        if self._tokens:
            points.append(Point(semconv.METRIC_TOKEN_ENERGY, joules / self._tokens))
        self._base, self._steps, self._tokens = dict(self._energy), 0, 0.0
        return points


class GpuUsageAnalysis(Analysis):
    """Shows how idle the GPUs of this machine are in each phase, and the energy of steps and tokens."""

    scope = "machine"

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._usage = GpuUsage()
        self._energy: list[Point] = []

    def see(self, items: Sequence[Item]) -> tuple[()]:
        """Count steps and their tokens, by their rows."""
        for item in items:
            if isinstance(item, Row) and not item.late and self._usage.knows_energy:
                self._usage.step_ended(self._tokens(item))
        return ()

    def measured(self, measurements: Sequence[Measurement]) -> None:
        """Relate measurements to the phases of the processes that live."""
        living = [one for name, one in self.basis.state.journals.items() if not one.over and not is_remote(name)]
        for measurement in measurements:
            self._usage.measured(measurement, lambda device: self._phase_on(device, living))
        self._energy = self._usage.energy()

    def points(self) -> list[Point]:
        """Return the idle shares, and the energy if steps have ended before the last measurement."""
        return [*self._usage.idle(), *self._energy]

    def _phase_on(self, device: str, living: Sequence[Journal]) -> str:
        """Return the phase of the process that uses the device, or of the first process if the user is unknown."""
        users = [journal for journal in living if device in {seen.uuid for seen in journal.devices.values()}]
        return self.basis.vocabulary.phase(next((j.phase_now for j in users or living if j.phase_now), ""))

    def _tokens(self, row: Row) -> float:
        read = self.basis.vocabulary.read
        known = {r.metric: v * r.factor for n, v in row.values.items() if (r := read(n)) and not r.attributes}
        rate = known.get(semconv.METRIC_TOKENS_RATE, 0.0) * row.values.get(STEP_TIME, 0.0)
        return known.get(semconv.METRIC_TRAIN_STEP_TOKENS, rate)
