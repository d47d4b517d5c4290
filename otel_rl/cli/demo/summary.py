"""The end of the demo: what the steps' time went to, what was learnt, and where to look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from otel_rl.cli.demo.recording import PhaseTime, Recording

ENDS = 5  # steps that are averaged at the start and at the end


def phase_table(recording: Recording) -> Table:
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
    table.add_section()
    add(whole, style="bold")
    return table


def learnt(recording: Recording, metric: str) -> str:
    """A metric's mean over the first and over the last steps."""
    series = recording.series(metric)
    if not series:
        return f"{metric}: nothing recorded"
    first, last = series[:ENDS], series[-ENDS:]
    return f"{metric}: {sum(first) / len(first):.3f} → {sum(last) / len(last):.3f}"


def places(directory: Path, prometheus: str | None) -> list[tuple[str, str]]:
    """Where the destinations are, as far as they wrote anything."""
    found = [("Prometheus", prometheus)] if prometheus else []
    if boards := sorted({path.parent for path in directory.rglob("events.out.tfevents.*")}):
        found.append(("TensorBoard", f"tensorboard --logdir {boards[0]}"))
    for offline in sorted(directory.rglob("offline-run-*/")):
        found.append(("W&B, offline", f"wandb sync {offline}"))
    return [*found, ("run directory", str(directory))]


def show(console: Console, recording: Recording, *, directory: Path, prometheus: str | None) -> None:
    """Print the whole summary."""
    console.print(phase_table(recording))
    console.print(f"mean of the first and of the last {ENDS} steps:", style="bold")
    for metric in ("reward", "rewards/exact_match/mean"):
        console.print(f"  {learnt(recording, metric)}", highlight=False)
    accuracy = recording.series("eval/accuracy")
    if accuracy:
        console.print(f"  eval/accuracy, first and last: {accuracy[0]:.3f} → {accuracy[-1]:.3f}", highlight=False)
    console.print()
    for name, place in places(directory, prometheus):
        console.print(f"[bold]{name:14}[/] {place}", highlight=False, soft_wrap=True)
