"""The remains of a job: its output, its runs, their rows and logs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import otel_rl
from tests.processes import rows_of

STEPS = 40
"""Default number of steps of a training."""


class LeftBehind(NamedTuple):
    """The directory that a job worked in."""

    path: Path  # where this host sees it

    @property
    def output(self) -> str:
        """The output of the job."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.path.glob("*.log")))

    @property
    def runs(self) -> list[Run]:
        """The runs that it recorded, by their names."""
        return [Run(path.parent) for path in sorted(self.path.glob("runs/*/*/run.json"))]

    @property
    def run(self) -> Run:
        """The run that it recorded; there is one."""
        (one,) = self.runs
        return one

    @property
    def finished(self) -> dict[int, list[str]]:
        """What `finish` said to the ranks."""
        found: dict[int, list[str]] = {}
        for said, rank in re.findall(r"finish (\w+) rank (\d+)", self.output):
            found.setdefault(int(rank), []).append(said)
        return found

    def logged(self, start: int = 0) -> list[set[int]]:
        """Return the steps of each rank that `log` returned from, in one start of the job."""
        found: dict[int, set[int]] = {}
        for step, rank in re.findall(rf"logged (\d+) rank (\d+) start {start}\n", self.output):
            found.setdefault(int(rank), set()).add(int(step))
        return [steps for _, steps in sorted(found.items())]

    def check_logged(self, world: int, start: int = 0) -> None:
        """Check that a start of the job is an attempt with each step, once, that `log` returned from on all ranks."""
        logged = self.logged(start)
        assert len(logged) == world, self.output
        by_all, by_any = set.intersection(*logged), set.union(*logged)
        rows = {row["step"]: row for row in self.run.rows if row["attempt"] == start}
        assert by_all <= set(rows), f"steps {by_all - set(rows)} are missing; {self.run.log}"
        assert set(rows) <= by_any | {max(by_any) + 1}  # a rank may be killed before it says so
        for step in by_all:
            check_values(rows[step], world)
        self.run.check_once()

    @property
    def targets(self) -> list[str]:
        """The files by which a Prometheus finds its agents."""
        return sorted(path.name for path in self.path.glob("runs/.targets/*.json"))


class Run(NamedTuple):
    """A run directory."""

    path: Path  # where this host sees it

    @property
    def rows(self) -> list[Any]:
        """All rows, in the order of the file."""
        return rows_of(self.path)

    @property
    def log(self) -> str:
        """The logs of the agents of all machines."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.path.glob("agent*.log")))

    @property
    def outcome(self) -> str:
        """How the last attempt that has ended did so."""
        return str(msgspec.json.decode((self.path / "run.end.json").read_bytes())["outcome"])

    @property
    def attempts(self) -> list[int]:
        """The attempts that rows are of."""
        return sorted({row["attempt"] for row in self.rows})

    def check(self, world: int, steps: int = STEPS, *, first: int = 0, attempt: int = 0) -> None:
        """Check that an attempt has each step once, with what all ranks logged, to the last digit."""
        rows = [row for row in self.rows if row["attempt"] == attempt]
        found = [row["step"] for row in rows]
        assert found == list(range(first, steps)), f"steps {found} of {steps}; {self.log}"
        for row in rows:
            check_values(row, world, f"{[row for row in rows if row.get('late')]} {self.log}")

    def check_once(self) -> None:
        """Check that no step of an attempt is there twice."""
        named = [(row["attempt"], row["step"]) for row in self.rows if not row.get("late")]
        assert len(named) == len(set(named)), self.path

    def check_history(self, world: int, steps: int) -> None:
        """Check that the valid history has each step once, with what all ranks logged."""
        found = otel_rl.open_run(self.path)
        lines = found.sql("SELECT step, any_value(missing_ranks) AS missing FROM steps GROUP BY step ORDER BY step")
        assert list(lines["step"]) == list(range(steps)), self.path
        assert not any(lines["missing"]), self.path
        rows: dict[int, dict[str, float]] = {}
        values = found.rows()
        for step, name, value in zip(values["step"], values["name"], values["value"], strict=True):
            rows.setdefault(step, {})[name] = value
        for step, of_step in rows.items():
            check_values({"step": step, "values": of_step}, world)


def check_values(row: Any, world: int, more: str = "") -> None:
    """Check that a row has what all ranks logged."""
    values = row["values"]
    assert values["ranks"] == 2.0**world - 1, f"{row} {more}"
    assert values["value"] == row["step"] + (world - 1) / 8, row
    assert "missing_ranks" not in row
