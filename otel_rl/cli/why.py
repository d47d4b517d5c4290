"""`otel-rl why`: why steps took their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from otel_rl.archive.runs import NEWEST
from otel_rl.cli.runs import Run
from otel_rl.cli.terminal import Output, shows

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Explain why steps took their time.")
@click.argument("run", default=NEWEST, type=Run())
@click.argument("step", required=False, type=int)
@click.option("--phase", default="", help="Explain this phase of the steps, instead of whole steps.")
@click.option("--from", "first", type=int, help="The first of several steps.")
@click.option("--to", "last", type=int, help="The last of them.")
@shows
def why(
    run: Path,
    step: int | None,
    phase: str,
    first: int | None,
    last: int | None,
    *,
    output: Output,
) -> None:
    """Say why a STEP of RUN took its time: by default, the slow steps of the newest run.

    The critical path leads through ranks, trajectories, queues, engines and weight syncs. It is compared with the paths
    of usual steps. A replay says how much time a step would save.
    """
    from otel_rl.archive.reader import open_run  # loads NumPy and DuckDB
    from otel_rl.insight.why.conclude import why as conclude
    from otel_rl.view.terminal.reasons import lines

    if step is not None and (first is not None or last is not None):
        raise click.UsageError("give a STEP, or --from and --to")
    steps = (step, step) if step is not None else None
    if first is not None or last is not None:
        steps = (0 if first is None else first, 1 << 62 if last is None else last)
    try:
        found = conclude(open_run(run), steps, phase)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    output.show(found, lambda width: lines(found, width))
