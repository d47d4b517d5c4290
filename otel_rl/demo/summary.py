"""The end of the demo: what the steps' time went to, what was learnt, and where to look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    import otel_rl
    from otel_rl.demo.recording import PhaseTime, Recording

LEARNT = ("reward", "rewards/exact_match/mean", "eval/accuracy")


def phase_table(recording: Recording, *, ranks: int) -> Table:
    """Every phase with its count, its time, and its share of the steps' time."""
    whole = recording.step_time()
    table = Table(title=f"where the time of {whole.count} steps went", title_justify="left")
    table.add_column("phase")
    for heading in ("count", "total s", "mean ms", "share"):
        table.add_column(heading, justify="right")

    def add(phase: PhaseTime, style: str = "") -> None:
        mean = 1000 * phase.seconds / phase.count if phase.count else 0.0
        share = phase.seconds / whole.seconds if whole.seconds else 0.0
        table.add_row(phase.name, str(phase.count), f"{phase.seconds:.2f}", f"{mean:.1f}", f"{share:.1%}", style=style)

    for phase in recording.phases():
        add(phase)
    add(recording.outside_phases(), style="bright_black")
    if ranks > 1:
        table.caption = "each number is its slowest rank's, so phases can add up to more than the step"
    table.add_section()
    add(whole, style="bold")
    return table


def learnt(recording: Recording, metric: str) -> str:
    """A metric where it was first recorded, and where it was last."""
    series = recording.series(metric)
    return f"{metric}: {series[0]:.3f} → {series[-1]:.3f}" if series else f"{metric}: nothing recorded"


def places(directory: Path, prometheus: str | None, *, held: bool) -> list[tuple[str, str]]:
    """Where the backends are, as far as they wrote anything."""
    ended = "" if held else " until the run ended; --hold keeps it up"
    found = [("Prometheus", prometheus + ended)] if prometheus else []
    if boards := sorted({path.parent for path in directory.rglob("events.out.tfevents.*")}):
        found.append(("TensorBoard", f"tensorboard --logdir {boards[0]}"))
    for offline in sorted(directory.rglob("offline-run-*/")):
        found.append(("W&B, offline", f"wandb sync {offline}"))
    return [*found, ("run directory", str(directory))]


def show(console: Console, recording: Recording, run: otel_rl.Run, *, ranks: int, held: bool) -> None:
    """Print the whole summary."""
    console.print(phase_table(recording, ranks=ranks))
    console.print("first → last:", style="bold")
    for metric in LEARNT:
        console.print(f"  {learnt(recording, metric)}", highlight=False)
    console.print()
    for name, place in places(run.dir, run.prometheus, held=held):
        console.print(f"[bold]{name:14}[/] {place}", highlight=False, soft_wrap=True)
