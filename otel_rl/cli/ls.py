"""`otel-rl ls`: the runs below a directory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from otel_rl.cli.runs import Run, runs_directory
from otel_rl.cli.terminal import Output, shows

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="List the runs below a directory.")
@click.argument("directories", metavar="[RUN]...", nargs=-1, type=Run(several=True))
@shows
def ls(directories: tuple[Path, ...], *, output: Output) -> None:
    """List the runs in OTEL_RL_DIR (runs), the one with the last sign of life first.

    RUN is a run directory, a directory of runs, or the id or the name of a run.
    """
    from otel_rl.view.terminal.listing import Listing, listed, runs_below, table

    places = directories or (runs_directory(),)
    runs = runs_below(places)
    if not runs and not output.is_json():
        where = ", ".join(map(str, places))
        raise click.ClickException(f"no run in {where}; record one with: otel-rl demo, or: otel-rl run -- COMMAND")
    output.show(Listing(runs=tuple(map(listed, runs))), lambda width: table(runs, width, time.time_ns()))
