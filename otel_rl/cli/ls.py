"""`otel-rl ls`: the runs below a directory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from otel_rl.cli.runs import Run
from otel_rl.cli.terminal import json_option, say_json


@click.command(short_help="List the runs below a directory.")
@click.argument("directories", metavar="[RUN]...", nargs=-1, type=Run(several=True))
@json_option
@click.option("--ascii", "ascii_alone", is_flag=True, help="Use no characters outside of ASCII.")
def ls(directories: tuple[Path, ...], *, as_json: bool, ascii_alone: bool) -> None:
    """List the runs in OTEL_RL_DIR (runs), the one with the last sign of life first.

    RUN is a run directory, a directory of runs, or the id or the name of a run.
    """
    from otel_rl.view.terminal.ansi import painted, this_terminal
    from otel_rl.view.terminal.listing import listed, runs_below, table

    places = directories or (Path(os.environ.get("OTEL_RL_DIR", "runs")),)
    runs = runs_below(places)
    if as_json:
        say_json([listed(run) for run in runs])
    elif not runs:
        where = ", ".join(map(str, places))
        raise click.ClickException(f"no run in {where}; record one with: otel-rl demo, or: otel-rl run -- COMMAND")
    else:
        terminal = this_terminal(ascii_alone=ascii_alone)
        for row in painted(table(runs, terminal.width, time.time_ns()), terminal):
            click.echo(row)
