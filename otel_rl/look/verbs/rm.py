"""`otel-rl rm`: delete runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import say
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.archive.removal import RefusedError, RunContent, content_of, remove
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    cls=Verb,
    section="operate",
    short_help="Delete runs, after a question.",
    examples={"rm newest": "the newest run", "rm baseline --yes": "the run with this name or id, unasked"},
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunArgument(exact=True))
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(runs: tuple[Path, ...], *, yes: bool) -> None:
    """Delete the directories of runs with everything in them, after a question that has their size and content.

    RUN is a run directory, or the id or the name of one run. A run that goes on is refused, and so are a directory of
    somebody else, a link, and what is not a run directory. Links in a run are deleted, and what they lead to stays.
    Runs in trackers stay too. To hide a run from lists instead: otel-rl tag RUN --archive.
    """
    runs = tuple(dict.fromkeys(runs))
    deleted: list[RunContent] = []
    try:
        contents = [content_of(run) for run in runs]
        for content in contents:
            say(f"{content.title} in {content.path}: {content.described}")
        size = wording.memory(sum(content.size for content in contents))
        if not yes:
            click.confirm(f"Delete {wording.count(len(runs), 'run')}, {size}?", abort=True)
        deleted.extend(map(remove, runs))
    except (RefusedError, BlockingIOError) as error:
        raise click.ClickException(str(error)) from error
    finally:
        if deleted:
            size = wording.memory(sum(content.size for content in deleted))
            paths = f": {', '.join(str(content.path) for content in deleted)}" if len(deleted) < len(runs) else ""
            say(f"deleted {wording.count(len(deleted), 'run')}, {size}{paths}")
