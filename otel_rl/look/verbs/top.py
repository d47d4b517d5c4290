"""`otel-rl top`: a run in the terminal, live or afterwards."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import Output, say_json, shows
from otel_rl.cli.runs import RunArgument, runs_directory
from otel_rl.recorder.archive.runs import NEWEST, directory_of, place_of

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.archive.runs import Place


@click.command(
    cls=Verb,
    section="look",
    extra="look",
    short_help="Show a run in the terminal, live or afterwards.",
    examples={"top": "the newest run", "top --once": "one screen, also into a file"},
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=RunArgument(several=True))
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@shows
def top(runs: tuple[Path, ...], *, once: bool, output: Output) -> None:
    """Show what each rank of a run does, where the time goes, and how the main metrics develop.

    RUN is a run directory, a directory of runs, or the id or the name of a run in OTEL_RL_DIR (runs). Without it,
    and in a directory of runs, it is the newest one, and the screen moves to a newer one that starts. Several runs
    are in `otel-rl ls`, `compare` and `ui`.

    Enter goes from a rank to a step and to a phase, Esc returns, / searches, left and right look at earlier steps, a
    shows the autopsy, w says why steps took their time, and ? shows all keys.
    """
    from otel_rl.cli.ansi import this_terminal
    from otel_rl.look.terminal import show

    if len(runs) > 1:
        raise click.UsageError("top shows one run; several: otel-rl ls, otel-rl compare, otel-rl ui")
    named = str(runs[0]) if runs else NEWEST
    place = place_of(RunArgument().convert(named, None, None))
    terminal = this_terminal(ascii_alone=output.ascii_alone)
    is_live = (
        not once and output.as_json is None and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    )  # Textual uses all three
    if output.is_json(is_text=once):
        say_json(show.statuses([place]))
    elif is_live:
        is_named = os.path.abspath(named) == str(place.path)  # noqa: PTH100 - links stay as they are
        show.live(place, terminal, newest=None if is_named else partial(_newest, named))
        sys.stdout.flush()
        os._exit(0)  # a query that still runs must not keep the process alive
    else:
        for row in show.once(place, terminal):
            click.echo(row)


def _newest(name: str) -> Place | None:
    """Return the newest run of a directory of runs."""
    run = directory_of(name, runs_directory())
    return None if isinstance(run, str) else place_of(run)
