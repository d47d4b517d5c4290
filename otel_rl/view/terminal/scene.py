"""The input of a screen: the present of a run, what was read of its past, and where the reader looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_rl.archive.now import ProcessNow
    from otel_rl.insight import Facts
    from otel_rl.view.terminal.lines import Line
    from otel_rl.view.terminal.phases import Phase, Points
    from otel_rl.view.terminal.present import Present

Who = tuple[str, int]
"""A process: its role, empty for a trainer rank, and its rank."""


@dataclass(kw_only=True)
class Scene:
    """Everything that a screen shows of a run.

    Attributes:
        present: The run as it is now.
        facts: What `insight` says of it; `None` while it is read.
        names: Names of all metrics, once they are read.
        curves: Whole curves, once they are read.
        bounds: The first and the last step, once they are read.
        step: The step that is looked at; `None` for the present.
        of_step: The phases of that step, or of the step of a page.
        of_rank: The phases of the last steps of a process.
        values: The values of the step.
        pattern: What names must contain to be shown.
        is_sorted: Whether the processes that wait longest come first.
        is_paused: Whether the screen stands still.
        note: What is read just now, or went wrong.
    """

    present: Present
    facts: Facts | None = None
    names: list[str] = field(default_factory=list)
    curves: dict[str, Points] = field(default_factory=dict)
    bounds: tuple[int, int] | None = None
    step: int | None = None
    of_step: dict[int, list[Phase]] = field(default_factory=dict)
    of_rank: dict[Who, list[Phase]] = field(default_factory=dict)
    values: dict[int, dict[str, float | None]] = field(default_factory=dict)
    pattern: str = ""
    is_sorted: bool = False
    is_paused: bool = False
    note: str = ""

    def matches(self, *texts: str) -> bool:
        """Return whether one of the texts has what the reader searches for."""
        wanted = self.pattern.lower()
        return any(wanted in text.lower() for text in texts)


class Drawn(NamedTuple):
    """A screen.

    Attributes:
        lines: Its lines.
        first: The line of the first row that a cursor can be on.
        top: The number of the first such row that is shown.
        rows: How many such rows there are in all.
        shown: How many of them are shown.
    """

    lines: list[Line]
    first: int = 0
    top: int = 0
    rows: int = 0
    shown: int = 0


def label(process: ProcessNow | tuple[str, int]) -> str:
    """Return the name of a process: its rank, or its role and number."""
    role, rank = process if isinstance(process, tuple) else (process.role, process.rank)
    return f"{role} {rank}" if role else f"{rank}"


def window(count: int, cursor: int, room: int) -> int:
    """Return the first of many rows that is shown, so that the one of the cursor is."""
    if count <= room:
        return 0
    return min(max(0, cursor - room // 2), count - room)
