"""`otel-rl report`: write what a run recorded as one HTML file."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import say
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.facts import wording
from otel_rl.recorder.files.outputs import place_for

_NAME = "report.html"
_WIDTH = 24


@click.command(
    cls=Verb,
    section="look",
    extra="look",
    short_help="Write a run as one HTML file.",
    examples={"report": "the newest run", "report newest -o report.html": "into this file"},
)
@click.argument("run", type=RunArgument(), default="newest")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), help="The file to write.")
def report(run: Path, file: Path | None) -> None:
    """Write RUN as one HTML file that makes no request.

    RUN is a run directory, a directory of runs, an id or a name. Without it, and in a directory of runs, it is the
    newest one.

    The file begins with what was found, and shows the evidence below: curves, phases, the timeline, memory, events.
    Open it from disk, or send it. Without -o, it is report.html in the run directory, or in the working directory if
    the run directory is not yours. A run that goes on, or was killed, is shown as far as it is.
    """
    from otel_rl.look.page.report import write_report

    place = file or place_for(run, _NAME)
    if not os.access(place.absolute().parent, os.W_OK):
        raise click.ClickException(f"{place.absolute().parent} is not a directory that can be written")
    try:
        write_report(run, place, _progress)
    finally:
        _clear()
    written = place.absolute()
    say(str(written))
    say(f"{wording.fixed(written.stat().st_size, 1, -6)} MB, for any browser. {_how_to_open(written)}", err=True)


def _progress(number: int, count: int, what: str) -> None:
    """Show on a terminal how much was read."""
    if sys.stderr.isatty():
        done = "━" * round(_WIDTH * number / count)
        click.echo(f"\r\x1b[K{done:<{_WIDTH}} {number}/{count} {what}", nl=False, err=True)


def _clear() -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def _how_to_open(file: Path) -> str:
    """Return how the reader gets to see the file, who may be on another machine."""
    if "SSH_CONNECTION" in os.environ:
        return f"From your own machine: scp {socket.gethostname()}:{file} ."
    return f"Open it with: xdg-open {file}"
