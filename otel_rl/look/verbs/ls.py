"""`otel-rl ls`: the runs below a directory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument, runs_directory

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    cls=Verb,
    section="look",
    short_help="List the runs below a directory.",
    examples={"ls": "all runs in OTEL_RL_DIR (runs)", "ls --json": "the same, for programs"},
)
@click.argument("directories", metavar="[RUN]...", nargs=-1, type=RunArgument(several=True))
@click.option("--all", "with_archived", is_flag=True, help="Also those that `otel-rl tag --archive` has hidden.")
@shows
def ls(directories: tuple[Path, ...], *, with_archived: bool, output: Output) -> None:
    """List the runs in OTEL_RL_DIR (runs), the one with the last sign of life first.

    RUN is a run directory, a directory of runs, or the id or the name of a run.
    """
    from otel_rl.look.terminal.listing import Listing, agreeing, facts_by_path, listed, runs_below, table

    places = directories or (runs_directory(),)
    at = time.time_ns()
    every = runs_below(places, at)
    runs = [run for run in every if with_archived or not run.marks.archived]
    if not runs and not output.is_json():
        where = ", ".join(map(str, places))
        if every:
            raise click.ClickException(f"all runs in {where} are archived; to see them: otel-rl ls --all")
        raise click.ClickException(f"no run in {where}; record one with: otel-rl demo, or: otel-rl run -- COMMAND")
    facts = facts_by_path(runs, at)
    runs = agreeing(runs, facts, at)
    listing = Listing(runs=tuple(listed(run, facts.get(run.path)) for run in runs))
    output.show(listing, lambda width: table(runs, width, at, facts))
