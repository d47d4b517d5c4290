"""The terminal display of the demo: a live panel while it trains, and a summary at the end, both from recorded rows."""

from __future__ import annotations

import itertools
import math
import threading
import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from otel_rl.archive.plain import rows
from otel_rl.errors.sinks import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

    from rich.console import Console

    import otel_rl
    from otel_rl.export import Row

REFRESH_S = 0.5
LINE_EVERY = 10
BARS = "▁▂▃▄▅▆▇█"
COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_black")
WIDTH = 48
EXACT_MATCH = "rewards/exact_match/mean"
LEARNED = ("reward", EXACT_MATCH, "eval/accuracy")
STEP_TIME = "time/step"


class Screen:
    """A live display of a run: a panel that is redrawn, or one line every ten steps if the output is not a terminal.

    Attributes:
        rows: The rows recorded so far, in the order of the steps.
    """

    def __init__(self, console: Console, directory: Path, *, steps: int, title: str) -> None:
        self.rows: list[Row] = []
        self._console, self._directory, self._steps, self._title = console, directory, steps, title
        self._started = time.monotonic()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._printed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="otel-rl-demo-screen", daemon=True)

    def __enter__(self) -> Self:
        if self._live is None:
            self._console.print(f"{self._title}\nwarming up on supervised examples")
        else:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._show()
        if self._live is not None:
            self._live.stop()

    def wait_for_rows(self, seconds: float) -> None:
        """Wait until the rows of all steps are there, at most this long."""
        deadline = time.monotonic() + seconds
        while len(self.rows) < self._steps and time.monotonic() < deadline:
            time.sleep(0.1)

    def _follow(self) -> None:
        while not self._stop.wait(REFRESH_S):
            self._show()

    def _show(self) -> None:
        self.rows = [row for row in rows(self._directory) if not row.late]  # of one attempt; the archive is 10 s behind
        if self._live is not None:
            elapsed = time.monotonic() - self._started
            self._live.update(panel(self.rows, steps=self._steps, title=self._title, elapsed=elapsed), refresh=True)
            return
        for row in self.rows[self._printed :]:
            self._printed += 1
            if row.step == 0 or (row.step + 1) % LINE_EVERY == 0 or row.step + 1 == self._steps:
                self._console.print(
                    f"step {row.step + 1:>4}/{self._steps}"
                    f"  reward {_number(row.values.get('reward'))}"
                    f"  exact match {_number(row.values.get(EXACT_MATCH))}"
                    f"  held out {_number(row.values.get('eval/accuracy'))}"
                    f"  {row.values.get(STEP_TIME, math.nan):.2f} s",
                    highlight=False,
                )


def panel(rows: Sequence[Row], *, steps: int, title: str, elapsed: float) -> Panel:
    """Draw the state of the run."""
    done = len(rows)
    if done >= steps:
        left = "done"
    elif done < 2:
        left = "warming up on supervised examples" if not done else "first step done"
    else:
        pace = (rows[-1].time_unix_nano - rows[0].time_unix_nano) / 1e9 / (done - 1)
        left = f"{_duration(pace * (steps - done))} left"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    table.add_row("step", f"{done}/{steps}", ProgressBar(total=steps, completed=done, width=WIDTH))
    table.add_row("", "", f"{_duration(elapsed)} elapsed, {left}")
    table.add_row("reward", _latest(rows, "reward"), Text(sparkline(series(rows, "reward")), style="green"))
    table.add_row("exact match", _latest(rows, EXACT_MATCH), "share of correct answers")
    table.add_row("held out", _latest(rows, "eval/accuracy"), "accuracy on problems never trained on")
    table.add_row("phases", "", _phase_bar(rows))
    return Panel(Group(table), title=title, title_align="left", expand=False)


def print_summary(console: Console, rows: Sequence[Row], run: otel_rl.Run, *, ranks: int, held: bool) -> None:
    """Print how the time of the steps was spent, what was learned, and where the results are."""
    console.print(_phase_table(rows, ranks=ranks))
    console.print("first → last:", style="bold")
    for metric in LEARNED:
        found = series(rows, metric)
        change = f"{found[0]:.3f} → {found[-1]:.3f}" if found else "nothing recorded"
        console.print(f"  {metric}: {change}", highlight=False)
    console.print()
    for name, place in _places(run.dir, run.prometheus, held=held):
        console.print(f"[bold]{name:14}[/] {escape(one_line(place))}", highlight=False, soft_wrap=True)


def series(rows: Sequence[Row], name: str) -> list[float]:
    """Return the values of a metric, in the order of the steps."""
    return [float(row.values[name]) for row in rows if name in row.values]


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Draw values between 0 and 1 as bars; if there are more than `width`, a bar is the mean of adjacent values."""
    columns = min(width, len(values))
    edges = [column * len(values) // columns for column in range(columns + 1)] if columns else []
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    return "".join("?" if math.isnan(mean) else BARS[int(max(0.0, min(0.999, mean)) * len(BARS))] for mean in means)


def _phases(rows: Sequence[Row]) -> list[tuple[str, list[float]]]:
    """Return the phases with their seconds in each step, longest first."""
    names = {name for row in rows for name in row.values if name.startswith("time/")} - {STEP_TIME}
    found = [(name.removeprefix("time/"), series(rows, name)) for name in names]
    return sorted(found, key=lambda phase: (-sum(phase[1]), phase[0]))


def _phase_bar(rows: Sequence[Row]) -> Text:
    """Draw one bar for all steps, divided by the share of each phase."""
    phases = _phases(rows)
    total = max(sum(series(rows, STEP_TIME)), sum(sum(seconds) for _, seconds in phases)) or 1.0
    bar, legend = Text(), Text()
    for (name, seconds), color in zip(phases, COLORS, strict=False):
        share = sum(seconds) / total
        bar.append("█" * int(share * WIDTH), style=color)
        if share >= 0.01:
            legend.append("■ ", style=color).append(f"{name} {share:.0%}  ")
    bar.append("░" * (WIDTH - len(bar.plain)), style="bright_black")
    return bar.append("\n").append_text(legend)


def _phase_table(rows: Sequence[Row], *, ranks: int) -> Table:
    """Draw every phase with its count, its time, and its share of the time of the steps."""
    phases, steps = _phases(rows), series(rows, STEP_TIME)
    total = sum(steps)
    table = Table(title=f"where the time of {len(steps)} steps went", title_justify="left")
    table.add_column("phase")
    for heading in ("count", "total s", "mean ms", "share"):
        table.add_column(heading, justify="right")

    def add(name: str, count: int, seconds: float, style: str = "") -> None:
        mean = 1000 * seconds / count if count else 0.0
        share = seconds / total if total else 0.0
        table.add_row(name, str(count), f"{seconds:.2f}", f"{mean:.1f}", f"{share:.1%}", style=style)

    for name, seconds in phases:
        add(name, len(seconds), sum(seconds))
    outside = max(0.0, total - sum(sum(seconds) for _, seconds in phases))
    add("not in any phase", len(steps), outside, style="bright_black")
    if ranks > 1:
        table.caption = "each number is that of the slowest rank, so the phases can add up to more than the step"
    table.add_section()
    add("step", len(steps), total, style="bold")
    return table


def _places(directory: Path, prometheus: str | None, *, held: bool) -> list[tuple[str, str]]:
    """Return what shows the run, each with its address or command."""
    ended = "" if held else " until the run ended; --hold keeps it up"
    found = [("Prometheus", prometheus + ended)] if prometheus else []
    if boards := sorted({path.parent for path in directory.rglob("events.out.tfevents.*")}):
        found.append(("TensorBoard", f"tensorboard --logdir {boards[0]}"))
    for offline in sorted(directory.rglob("offline-run-*/")):
        found.append(("W&B, offline", f"wandb sync {offline}"))
    return [*found, ("run directory", str(directory))]


def _duration(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _latest(rows: Sequence[Row], name: str) -> str:
    found = series(rows, name)
    return _number(found[-1] if found else None)
