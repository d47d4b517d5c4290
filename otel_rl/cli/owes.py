"""`otel-rl owes`: what a run waits for, and who owes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from otel_rl.archive.runs import NEWEST
from otel_rl.cli.runs import Run
from otel_rl.cli.terminal import Output, shows

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Say what a run waits for, and who owes it.")
@click.argument("run", default=NEWEST, type=Run())
@shows
def owes(run: Path, *, output: Output) -> None:
    """Say what RUN waits for right now, and who owes it; by default, the newest run.

    A wait can never end if its debtor is dead, has ended, or waits in turn for the one who waits. This is certain at
    once, without a time-out. A debtor that works is slow, however long it takes.
    """
    from otel_rl.archive.runs import place_of
    from otel_rl.insight.owed import owed
    from otel_rl.view.terminal.debts import lines

    found = owed(place_of(run))
    output.show(found, lambda width: lines(found, width))
