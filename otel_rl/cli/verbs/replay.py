"""`otel-rl replay`: an earlier name of `otel-rl export RUN --to EXPORTER`."""

from __future__ import annotations

from pathlib import Path

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.options import NamesType
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.files.modes import own_process


@click.command(
    cls=Verb,
    section="send",
    hidden=True,
    short_help="An earlier name of export.",
    examples={"export newest --to wandb": "does the same"},
)
@click.argument("run", type=RunArgument())
@click.option("--to", "names", required=True, type=NamesType(), help="Exporters, separated by commas.")
@click.option("-o", "--output", "into", type=click.Path(file_okay=False, path_type=Path), help="A directory for files.")
@click.option("--again", is_flag=True, help="Forget what was sent before.")
@click.option("--json/--text", "as_json", default=False, help="Print JSON, or text.  [default: text]")
def replay(run: Path, names: tuple[str, ...], into: Path | None, *, again: bool, as_json: bool) -> None:
    """Give what RUN recorded to exporters, as `otel-rl export` does."""
    from otel_rl.cli.late.give import give

    own_process()
    give(run, names, into, again=again, as_json=as_json)
