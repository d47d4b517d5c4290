"""What the recorder wrote about the run so far, read from `rows.jsonl` while it grows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TIME_PREFIX = "time/"
STEP_TIME = "time/step"


@dataclass(frozen=True)
class PhaseTime:
    """How long one phase took in all steps together."""

    name: str
    count: int
    seconds: float


class Recording:
    """The rows of a run; `read` takes in those that are new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[int, dict[str, float]] = {}
        self._times: dict[int, int] = {}
        self._offset = 0

    def read(self) -> bool:
        """Take in the lines that are complete by now; whether there were any."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                complete = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return False
        if not complete:
            return False
        self._offset += len(complete) + 1
        for line in complete.splitlines():
            row = json.loads(line)
            values = {name: float(value) for name, value in row["values"].items()}
            self.rows.setdefault(row["step"], {}).update(values)
            self._times.setdefault(row["step"], row["time_unix_nano"])
        return True

    def series(self, name: str) -> list[float]:
        """All values of a metric, in the order of the steps."""
        return [values[name] for _, values in sorted(self.rows.items()) if name in values]

    def latest(self, name: str) -> float | None:
        """The newest value of a metric."""
        return series[-1] if (series := self.series(name)) else None

    def seconds_per_step(self) -> float | None:
        """The time from one step to the next, on average."""
        if len(self._times) < 2:
            return None
        times = sorted(self._times.values())
        return (times[-1] - times[0]) / 1e9 / (len(times) - 1)

    def phases(self) -> list[PhaseTime]:
        """The phases by their total time, longest first."""
        names = {name for values in self.rows.values() for name in values if name.startswith(TIME_PREFIX)} - {STEP_TIME}
        times = [(name, self.series(name)) for name in names]
        phases = [PhaseTime(name.removeprefix(TIME_PREFIX), len(each), sum(each)) for name, each in times]
        return sorted(phases, key=lambda phase: (-phase.seconds, phase.name))

    def step_time(self) -> PhaseTime:
        """The steps themselves."""
        each = self.series(STEP_TIME)
        return PhaseTime("step", len(each), sum(each))

    def outside_phases(self) -> PhaseTime:
        """What the steps took besides their phases."""
        steps = self.step_time()
        inside = sum(phase.seconds for phase in self.phases())
        return PhaseTime("not in any phase", steps.count, max(0.0, steps.seconds - inside))
