"""`otel-rl compare`: how runs differ, how sure that is, and whether it is within gates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.options import RenamedOption, takes_steps
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument

if TYPE_CHECKING:
    from otel_rl.cli.options import StepInterval


class _CannotCompareError(click.ClickException):
    exit_code = 3


class _Compare(Verb):
    """A command whose mistakes have an exit code of their own: click's is 2."""

    failure = _CannotCompareError

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _CannotCompareError(error.format_message()) from error


@click.command(
    cls=_Compare,
    section="explain",
    extra="look",
    short_help="Compare runs, and gate on the difference.",
    examples={
        "compare baseline newest": "how the newest run differs from `baseline`",
        "compare baseline newest --gate throughput:-3%": "exits with 1 if it is slower",
        "compare baseline newest --steps 20: -o page.html": "without a warm-up, as a page too",
        "compare baseline --against newest": "two sides, each with one run or several",
    },
)
@click.argument("base", type=RunArgument())
@click.argument("new", nargs=-1, type=RunArgument())
@click.option(
    "--against", multiple=True, type=RunArgument(), help="A run of the new side, of which all others are the base."
)
@click.option("--gate", "gates", default="", help="Limits, such as throughput:-3%,reward:-0.01,memory:+5%.")
@click.option("--by", type=click.Choice(["step", "tokens"]), default="step", show_default=True, help="The axis.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, for a pull request.")
@takes_steps("Compare these steps.")
@click.option(
    "-o",
    "--output",
    "page",
    cls=RenamedOption,
    old=["--html"],
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page, too.",
)
@shows
def compare(
    base: Path,
    new: tuple[Path, ...],
    against: tuple[Path, ...],
    gates: str,
    by: str,
    steps: StepInterval | None,
    *,
    as_markdown: bool,
    page: Path | None,
    output: Output,
) -> None:
    """Say how each of the runs NEW differs from the run BASE, in a column for each.

    With --against, which can be repeated, there are two sides: the runs BASE NEW …, and those behind --against.

    Differences have intervals that allow for steps that depend on each other and for the warm-up. A gate is a metric
    and how far it may fall (-) or grow (+): a topic such as throughput, step_time, memory or reward, or the name of a
    metric.

    Exits with 0 if the difference is within all gates, with 1 if it is beyond one, with 2 if so few steps
    cannot decide it, and with 3 if the runs cannot be compared.
    """
    from otel_rl.look.insight.compare.columns import compare_each
    from otel_rl.look.insight.compare.conclude import compare as conclude
    from otel_rl.look.insight.compare.gates import gates_of
    from otel_rl.look.reader.runs import open_run  # loads NumPy and DuckDB
    from otel_rl.look.terminal.comparison import lines, markdown

    try:
        limits = gates_of(gates)
        if not (new or against):
            raise _CannotCompareError("one run is not compared with itself: name another one, or newest")
        sides = ((base, *new), against) if against else ((base,), new)
        before, after = ([open_run(run) for run in side] for side in sides)
        if against:
            difference = conclude(before, after, limits, steps, by_tokens=by == "tokens")
        else:
            difference = compare_each(before[0], after, limits, steps, by_tokens=by == "tokens")
    except (ValueError, OSError) as error:
        raise _CannotCompareError(str(error)) from error
    if page is not None:
        from otel_rl.look.page.comparison import comparison_page
        from otel_rl.recorder.files.atomic_files import write_atomically

        try:
            write_atomically(page.absolute(), comparison_page(difference, before, after).encode())
        except OSError as error:
            raise _CannotCompareError(f"{page}: {error.strerror}") from error
    if as_markdown:
        click.echo(markdown(difference))
    else:
        output.show(difference, lambda width: lines(difference, width))
    raise SystemExit(difference.exit_code)
