"""`otel-rl samples`: what the policy wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.options import takes_steps
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.archive.runs import NEWEST

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.cli.options import StepInterval
    from otel_rl.look.insight.samples.selection import Order


@click.command(
    cls=Verb,
    section="look",
    extra="look",
    short_help="Read what the policy wrote.",
    examples={
        "samples": "the best and the worst of the last step",
        "samples newest --steps 0:10 --worst reward": "the worst of some steps",
    },
)
@click.argument("run", default=NEWEST, type=RunArgument())
@takes_steps("Of these steps; by default of the last one.", old=["--step"])
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
    steps: StepInterval | None,
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
    from otel_rl.look.insight.samples.conclude import samples as conclude
    from otel_rl.look.insight.samples.selection import GAP, REWARD, SampleQuery
    from otel_rl.look.reader.runs import open_run  # loads NumPy and DuckDB
    from otel_rl.look.terminal.samples import lines

    if sum((best is not None, worst is not None, longest, gap)) > 1:
        raise click.UsageError("give one of --best, --worst, --longest and --gap")
    order: Order = "best" if best or gap else "worst" if worst else "longest" if longest else "extremes"
    wanted = SampleQuery(
        steps=steps,
        group=group,
        trajectory=trajectory.lower(),
        contains=contains,
        order="recorded" if order == "extremes" and (contains or trajectory) else order,
        by=GAP if gap else best or worst or REWARD,
        other_step=other_step,
        most=most,
    )
    try:
        answer = conclude(open_run(run), wanted)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    output.show(answer, lambda width: lines(answer, width, whole=full or bool(trajectory)))
