"""The pieces of the display: a sparkline, the shares of the phases, and the panel they are put in."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.demo.recording import Recording

BARS = "▁▂▃▄▅▆▇█"
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_black")
WIDTH = 48


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Values between 0 and 1 as bars; the mean of neighbours where there are more than fit."""
    columns = min(width, len(values))
    edges = [column * len(values) // columns for column in range(columns + 1)] if columns else []
    return "".join(_bar(sum(values[a:b]) / (b - a)) for a, b in itertools.pairwise(edges))


def _bar(value: float) -> str:
    if math.isnan(value):
        return "?"
    return BARS[int(max(0.0, min(0.999, value)) * len(BARS))]


def duration(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def number(value: float | None) -> str:
    """A metric, or a dash while there is none."""
    return "-" if value is None else f"{value:.3f}"


def phase_shares(recording: Recording, width: int = WIDTH) -> Text:
    """One bar for a step, in it each phase as long as its share."""
    phases = recording.phases()
    whole = max(recording.step_time().seconds, sum(phase.seconds for phase in phases)) or 1.0
    bar, legend = Text(), Text()
    for phase, colour in zip(phases, COLOURS, strict=False):
        share = phase.seconds / whole
        bar.append("█" * int(share * width), style=colour)
        if share >= 0.01:
            legend.append("■ ", style=colour).append(f"{phase.name} {share:.0%}  ")
    bar.append("░" * (width - len(bar.plain)), style="bright_black")
    return bar.append("\n").append_text(legend)


def panel(recording: Recording, *, steps: int, title: str, elapsed: float) -> Panel:
    """Where the run stands, all of it as recorded."""
    done = len(recording.rows)
    pace = recording.seconds_per_step()
    if done >= steps:
        left = "done"
    elif pace is None:
        left = "warming up on supervised examples"
    else:
        left = f"{duration(pace * (steps - done))} left"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    table.add_row("step", f"{done}/{steps}", ProgressBar(total=steps, completed=done, width=WIDTH))
    table.add_row("", "", f"{duration(elapsed)} elapsed, {left}")
    reward = recording.series("reward")
    table.add_row("reward", number(recording.latest("reward")), Text(sparkline(reward), style="green"))
    table.add_row("exact match", number(recording.latest("rewards/exact_match/mean")), "answers that are right")
    table.add_row("held out", number(recording.latest("eval/accuracy")), "accuracy on problems never trained on")
    table.add_row("phases", "", phase_shares(recording))
    return Panel(Group(table), title=title, title_align="left", expand=False)
