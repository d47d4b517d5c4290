"""`otel-rl top`: a run in the terminal, live or afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from otel_rl.cli.runs import NEWEST, Run
from otel_rl.cli.terminal import json_option, say_json

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Show a run in the terminal, live or afterwards.")
@click.argument("run", metavar="[RUN]", type=Run(), default=NEWEST)
@click.option("--once", is_flag=True, help="Print one screen and exit, as if the output is not a terminal.")
@json_option
@click.option("--ascii", "ascii_alone", is_flag=True, help="Use no characters outside of ASCII.")
def top(run: Path, *, once: bool, as_json: bool, ascii_alone: bool) -> None:
    """Show what each rank of a run does, where the time goes, and how the main metrics develop.

    RUN is a run directory, or the id or the name of a run in OTEL_RL_DIR (runs); without it, the newest one.

    Enter goes from a rank to a step and to a phase, Esc returns, / searches, left and right look at earlier steps, and
    ? shows all keys.
    """
    from otel_rl.archive.runs import place_of
    from otel_rl.view.terminal import show
    from otel_rl.view.terminal.ansi import this_terminal

    try:
        place = place_of(run)
    except FileNotFoundError as error:
        raise click.ClickException(str(error)) from None
    terminal = this_terminal(ascii_alone=ascii_alone)
    if as_json:
        say_json(show.read(place))
    elif once or not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):  # Textual uses all three
        for row in show.once(place, terminal):
            click.echo(row)
    else:
        show.live(place, terminal)
