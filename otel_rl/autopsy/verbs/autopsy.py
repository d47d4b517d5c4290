"""`otel-rl autopsy`: why a run hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.archive.runs import NEWEST, place_of

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    cls=Verb,
    section="explain",
    short_help="Say why a run hangs, with stacks.",
    examples={"autopsy": "of the newest run, on this machine"},
)
@click.argument("run", default=NEWEST, type=RunArgument())
@click.option("--cause", default="", help="Why you believe that it hangs: then the likeliest cause is always named.")
@shows
def autopsy(run: Path, cause: str, *, output: Output) -> None:
    """Say why RUN hangs: who waits, for whom, and what the awaited one does.

    It takes the stacks of all processes of the run on this machine, which goes on undisturbed, and asks the kernel and
    the inference servers. Run it on each machine of a run: the last one joins what the others have seen. The text and
    the evidence stay in autopsy/ of the run directory.
    """
    from otel_rl.autopsy.conclude import autopsy as conclude
    from otel_rl.cli.lines import line
    from otel_rl.recorder.archive.autopsy_text import lines_of

    concluded = conclude(place_of(run).path, cause)
    output.show(
        concluded, lambda _: [line((text, style)) for style, text in (*lines_of(concluded), ("dim", concluded.file))]
    )
