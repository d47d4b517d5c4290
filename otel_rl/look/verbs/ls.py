"""`otel-rl ls`: the runs below a directory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.options import NamesType, PriceType
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument, runs_directory

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.cli.lines import Line


@click.command(
    cls=Verb,
    section="look",
    short_help="List the runs below a directory.",
    extra="look",  # for values that no summary has
    examples={
        "ls": "all runs in OTEL_RL_DIR (runs)",
        "ls --where 'state:finished steps>=10' --sort reward": "chosen ones, the best first",
        "ls --group project": "what each project cost, and its best run",
        "ls --columns lr,reward,kl:best,loss:mean100": "with parameters and metrics",
        "ls --json": "for programs",
    },
)
@click.argument("directories", metavar="[RUN]...", nargs=-1, type=RunArgument(several=True))
@click.option("--where", multiple=True, metavar="CONDITIONS", help="Only runs that meet all conditions.")
@click.option("--sort", metavar="NAME", help="By this value, the best or largest first; -NAME is the other way round.")
@click.option("--columns", type=NamesType(), default=(), metavar="NAMES", help="Further values, separated by commas.")
@click.option("--group", metavar="NAME", help="In groups of one value, each with its cost and the best run.")
@click.option(
    "--cost-per-gpu-hour",
    "price",
    type=PriceType(),
    help="Price of an hour of a GPU, in place of that of each run.",
)
@click.option("--all", "with_archived", is_flag=True, help="Also those that `otel-rl tag --archive` has hidden.")
@shows
def ls(
    directories: tuple[Path, ...],
    where: tuple[str, ...],
    sort: str | None,
    columns: tuple[str, ...],
    group: str | None,
    price: float | None,
    *,
    with_archived: bool,
    output: Output,
) -> None:
    """List the runs in OTEL_RL_DIR (runs), the one with the last sign of life first.

    RUN is a run directory, a directory of runs, or the id or the name of a run.

    CONDITIONS are words and texts in quotation marks in the name, the project, the id, the tags or the notes;
    state:hung, project:math, tag:good, host:node7, several with commas, also as globs; and values such as lr>1e-6,
    kl:best<0.05, steps>=100, model=qwen. A minus in front of a condition is the opposite.

    A value is steps, step_time, seen, gpu_hours, cost, wasted, tokens, a parameter, or a metric: its last value, or
    another one with :best, :min, :max or :mean100 at its end. A parameter may be named by the end of its name.
    """
    from otel_rl.look.insight.run_groups import groups_of
    from otel_rl.look.insight.run_values import OF_RUN, RunValues, chosen
    from otel_rl.look.insight.selection import SelectionError, column_of
    from otel_rl.look.terminal.listing import Listing, agreeing, facts_by_path, grouped, listed, runs_below, table

    places = directories or (runs_directory(),)
    at = time.time_ns()
    every = runs_below(places, at)
    conditions = " ".join(where)
    try:
        some = (RunValues(run, at, price) for run in every)
        known, wanted, order = chosen(some, conditions, sort or "", columns, with_archived=with_archived)
        if order is not None and order not in wanted and order.name not in OF_RUN:
            wanted += (order,)
        groups = groups_of(known, column_of(group), lambda run: run.facts) if group else ()
        if groups:
            by_path = {run.run.path: run for run in known}
            known = [by_path[path] for of_group in groups for path in of_group.runs]
        facts = facts_by_path(known)
        values = {run.run.path: {str(column): run.value(column) for column in wanted} for run in known}
    except SelectionError as error:
        raise click.ClickException(str(error)) from error
    if not known and not output.is_json():
        in_places = ", ".join(map(str, places))
        if any(with_archived or not run.marks.archived for run in every):
            raise click.ClickException(f"no run in {in_places} meets {conditions}")
        if every:
            raise click.ClickException(f"all runs in {in_places} are archived; to see them: otel-rl ls --all")
        raise click.ClickException(f"no run in {in_places}; record one with: otel-rl demo, or: otel-rl run -- COMMAND")
    runs = agreeing((run.run for run in known), facts, at)
    listing = Listing(runs=tuple(listed(run, facts.get(run.path), values[run.path]) for run in runs), groups=groups)

    def drawn(width: int) -> list[Line]:
        lines = table(runs, width, at, facts, values)
        return grouped(lines, groups, width) if groups else lines

    output.show(listing, drawn)
