"""`otel-rl top`: a run in the terminal, live or afterwards."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from otel_rl.archive.runs import NEWEST
from otel_rl.cli.runs import Run
from otel_rl.cli.terminal import Output, say_json, shows

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Show runs in the terminal, live or afterwards.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=Run())
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@shows
def top(runs: tuple[Path, ...], *, once: bool, output: Output) -> None:
    """Show what each rank of a run does, where the time goes, and how the main metrics develop.

    RUN is a run directory, a directory of runs, or the id or the name of a run in OTEL_RL_DIR (runs). Without it, and
    in a directory of runs, it is the newest one. Several runs are shown as a list, with their curves laid over each
    other.

    Enter goes from a rank to a step and to a phase, Esc returns, / searches, left and right look at earlier steps, and
    ? shows all keys.
    """
    from otel_rl.archive.runs import place_of
    from otel_rl.view.terminal import show
    from otel_rl.view.terminal.ansi import this_terminal

    places = [place_of(run) for run in runs or (Run().convert(NEWEST, None, None),)]
    terminal = this_terminal(ascii_alone=output.ascii_alone)
    is_live = (
        not once and output.as_json is None and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    )  # Textual uses all three
    if output.is_json(is_text=once):
        say_json(show.statuses(places))
    elif is_live:
        if len(places) == 1:
            show.live(places[0], terminal)
        else:
            show.several(places, terminal)
        sys.stdout.flush()
        os._exit(0)  # a query that still runs must not keep the process alive
    else:
        screen = show.once(places[0], terminal) if len(places) == 1 else show.several_once(places, terminal)
        for row in screen:
            click.echo(row)
