"""`otel-rl autopsy`: why a run hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from otel_rl.archive.runs import NEWEST, place_of
from otel_rl.cli.runs import Run
from otel_rl.cli.terminal import Output, shows

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Say why a run hangs, with stacks.")
@click.argument("run", default=NEWEST, type=Run())
@click.option("--cause", default="", help="Why you believe that it hangs: then the likeliest cause is always named.")
@shows
def autopsy(run: Path, cause: str, *, output: Output) -> None:
    """Say why RUN hangs: who waits, for whom, and what the awaited one does.

    It takes the stacks of all processes of the run on this machine, which goes on undisturbed, and asks the kernel and
    the inference servers. Run it on each machine of a run: the last one joins what the others have seen. The text and
    the evidence stay in autopsy/ of the run directory.
    """
    from otel_rl.autopsy.conclude import autopsy as conclude
    from otel_rl.autopsy.text import lines_of
    from otel_rl.view.terminal.lines import line

    found = conclude(place_of(run).path, cause)
    output.show(found, lambda _: [line((text, style)) for style, text in (*lines_of(found), ("dim", found.file))])
