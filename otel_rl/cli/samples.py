"""`otel-rl samples`: what the policy wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from otel_rl.archive.runs import NEWEST
from otel_rl.cli.runs import Run
from otel_rl.cli.terminal import Output, shows

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.insight.samples.choose import Order


@click.command(short_help="Read what the policy wrote.")
@click.argument("run", default=NEWEST, type=Run())
@click.option("--step", type=int, help="Of this step; by default of the last one.")
@click.option("--group", metavar="GROUP", help="Of this group of the step, which has one prompt: its number or id.")
@click.option("--trajectory", default="", metavar="ID", help="The trajectory with this id, or its first digits, whole.")
@click.option("--contains", default="", help="Those with this text, whatever the case; of all steps by default.")
@click.option("--best", metavar="NUMBER", help="The best first, by `reward` or another number.")
@click.option("--worst", metavar="NUMBER", help="The worst first.")
@click.option("--longest", is_flag=True, help="The longest first.")
@click.option("--gap", is_flag=True, help="Those first whose probabilities differ the most in engine and trainer.")
@click.option("--diff", "other_step", type=int, metavar="STEP", help="Beside those of the same prompts in this step.")
@click.option("-n", "--number", "most", type=click.IntRange(1, 10_000), default=4, show_default=True, help="How many.")
@click.option("--full", is_flag=True, help="Do not cut long texts.")
@shows
def samples(
    run: Path,
    step: int | None,
    group: str | None,
    trajectory: str,
    contains: str,
    best: str | None,
    worst: str | None,
    other_step: int | None,
    most: int,
    *,
    longest: bool,
    gap: bool,
    full: bool,
    output: Output,
) -> None:
    """Show completions of RUN, by default the best and the worst of the last step of the newest run.

    It also names phrases that became frequent and earn a reward. Texts are recorded by `trajectory.message`,
    `run.completions` and the tables of frameworks, with `init(content=True)` or OTEL_RL_CONTENT=true.
    """
    from otel_rl.archive.reader import open_run  # loads NumPy and DuckDB
    from otel_rl.insight.samples.choose import GAP, REWARD, Wanted
    from otel_rl.insight.samples.conclude import samples as conclude
    from otel_rl.view.terminal.samples import lines

    if sum((best is not None, worst is not None, longest, gap)) > 1:
        raise click.UsageError("give one of --best, --worst, --longest and --gap")
    order: Order = "best" if best or gap else "worst" if worst else "longest" if longest else "extremes"
    wanted = Wanted(
        step=step,
        group=group,
        trajectory=trajectory.lower(),
        contains=contains,
        order="recorded" if order == "extremes" and (contains or trajectory) else order,
        by=GAP if gap else best or worst or REWARD,
        other_step=other_step,
        most=most,
    )
    try:
        found = conclude(open_run(run), wanted)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    output.show(found, lambda width: lines(found, width, whole=full or bool(trajectory)))
