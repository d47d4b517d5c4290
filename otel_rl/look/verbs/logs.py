"""`otel-rl logs`: what the processes printed."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from otel_rl.cli.commands import Verb
from otel_rl.cli.options import takes_steps
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.archive.lease import hold_lease
from otel_rl.recorder.archive.runs import NEWEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.cli.options import StepInterval
    from otel_rl.look.insight.printed_lines import LogLine, LogQuery, Logs
    from otel_rl.look.reader.runs import RunReader

_AT_ONCE = 10_000
_PAUSE_S = 1.0
_LATE_NS = 20_000_000_000
"""Lines that arrive from another machine are looked for so far back."""


@click.command(
    cls=Verb,
    section="look",
    extra="look",
    short_help="Read what the processes printed.",
    examples={
        "logs": "the last lines of the newest run",
        "logs newest --severity error": "errors alone",
        "logs newest --rank 3 --around 14:03:07": "what rank 3 printed then",
        "logs -f": "new lines as they come",
    },
)
@click.argument("run", default=NEWEST, type=RunArgument())
@takes_steps("Of these steps.")
@click.option("--rank", type=click.IntRange(0), help="Of this rank; with --role, of this process of a role.")
@click.option("--role", default="", help="Of processes with this role.")
@click.option("--phase", default="", help="Printed in this phase.")
@click.option(
    "--severity",
    type=click.Choice(["debug", "info", "warning", "error", "fatal"]),
    default=None,
    help="At least so severe; printed lines count by what they look like.",
)
@click.option(
    "--grep", "pattern", default="", metavar="PATTERN", help="With this regular expression, whatever the case."
)
@click.option("--around", default="", metavar="TIME", help="Nearest to HH:MM:SS, or to a date and a time, here.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines as they come, until Ctrl-C.")
@click.option(
    "-n", "--number", "most", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many."
)
@shows
def logs(
    run: Path,
    steps: StepInterval | None,
    rank: int | None,
    role: str,
    phase: str,
    severity: str | None,
    pattern: str,
    around: str,
    most: int,
    *,
    follow: bool,
    output: Output,
) -> None:
    """Show what the processes of RUN printed, with the step and the phase in which each line came.

    Lines come from files that standard output and error go to, from a terminal or a pipe with `init(output=True)` or
    under `otel-rl run`, and from Python's logging. Python writes into files in pieces of 8 KiB: with
    PYTHONUNBUFFERED=1, each line comes in its phase.
    """
    import duckdb

    from otel_rl.look.insight.printed_lines import LogQuery, time_in
    from otel_rl.look.insight.printed_lines import logs as conclude
    from otel_rl.look.reader.runs import open_run  # loads NumPy and DuckDB
    from otel_rl.look.terminal.printed_lines import lines

    if around and follow:
        raise click.UsageError("give one of --around and --follow")
    reader = open_run(run)
    try:
        near = time_in(around, time.time_ns()) if around else None
        query = LogQuery(
            steps=steps,
            rank=rank,
            role=role,
            phase=phase,
            severity=severity or "",
            pattern=pattern,
            around_unix_nano=near,
            most=most,
        )
        answer = conclude(reader, query)
    except (ValueError, duckdb.InvalidInputException) as error:
        raise click.ClickException(str(error)) from error
    output.show(answer, lambda _: lines(answer))
    if follow:
        with suppress(KeyboardInterrupt):
            for more in _new_lines(reader, run, query, answer):
                output.show(more, lambda _, more=more: lines(more))  # type: ignore[misc]


def _new_lines(reader: RunReader, run: Path, query: LogQuery, shown: Logs) -> Iterator[Logs]:
    """Yield lines that have come since, while the agent saves them each second."""
    from otel_rl.look.insight.printed_lines import logs as conclude

    known: dict[LogLine, None] = dict.fromkeys(shown.lines)
    while True:
        hold_lease(run)
        time.sleep(_PAUSE_S)
        newest = max((line.time_unix_nano for line in known), default=time.time_ns())
        known = {line: None for line in known if line.time_unix_nano > newest - _LATE_NS}
        later = conclude(reader, replace(query, since_unix_nano=newest - _LATE_NS, most=_AT_ONCE))
        if lines := tuple(line for line in later.lines if line not in known):
            known |= dict.fromkeys(lines)
            yield replace(later, lines=lines, total=len(lines))
