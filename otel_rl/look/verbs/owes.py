"""`otel-rl owes`: what a run waits for, and who owes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.archive.runs import NEWEST

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    cls=Verb,
    section="explain",
    extra="look",
    hidden=True,
    short_help="An earlier name of a part of why.",
    examples={"why": "says more"},
)
@click.argument("run", default=NEWEST, type=RunArgument())
@shows
def owes(run: Path, *, output: Output) -> None:
    """Say what RUN waits for right now, and who owes it; by default, the newest run.

    A wait can never end if its debtor is dead, has ended, or waits in turn for the one who waits. This is certain at
    once, without a time-out. A debtor that works is slow, however long it takes.
    """
    from otel_rl.look.insight.owed import owed
    from otel_rl.look.terminal.debts import lines
    from otel_rl.recorder.archive.runs import place_of

    answer = owed(place_of(run))
    output.show(answer, lambda width: lines(answer, width))
