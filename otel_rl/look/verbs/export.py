"""`otel-rl export`: write what a run recorded into files of other programs, or give it to exporters."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.late.exported import Exported
from otel_rl.cli.options import NamesType, exporters, takes_steps
from otel_rl.cli.output import say, say_json
from otel_rl.cli.runs import RunArgument, runs_directory
from otel_rl.recorder.errors.texts import meant
from otel_rl.recorder.files.modes import own_process
from otel_rl.recorder.files.outputs import place_for

if TYPE_CHECKING:
    from otel_rl.cli.options import StepInterval

_FILES = {"perfetto": "trace.json.gz", "csv": "csv", "parquet": "parquet", "atif": "atif"}
_FORMATS = (*_FILES, "run")
_RUN = RunArgument()


@click.command(
    cls=Verb,
    section="send",
    extra="look",
    short_help="Send a run to W&B and others, or write it as CSV, Parquet, ATIF or for Perfetto.",
    examples={
        "export newest --to wandb": "to a tracker that the run did not have",
        "export newest --to tensorboard,mlflow": "to several",
        "export newest --to csv -o tables": "rows.csv has a line for each step",
        "export newest --to perfetto --steps 0:20": "the timeline of some steps",
    },
)
@click.argument("source", metavar="RUN", shell_complete=_RUN.shell_complete)
@click.option(
    "--to",
    "names",
    required=True,
    type=NamesType(lambda: [*_FORMATS, *exporters()]),
    help="A format, or exporters, separated by commas: wandb, mlflow, tensorboard, otlp, …",
)
@click.option("-o", "--output", "place", type=click.Path(path_type=Path), help="The file or directory to write.")
@takes_steps("Write these steps alone.", old_ends=("--from", "--to-step"))
@click.option("--safe", is_flag=True, help="In CSV, put an apostrophe before texts that a spreadsheet would run.")
@click.option("--again", is_flag=True, help="Give exporters everything again that their destination lacks.")
@click.option("--json/--text", "as_json", default=False, help="Print JSON, or text.  [default: text]")
@click.pass_context
def export(
    context: click.Context,
    source: str,
    names: tuple[str, ...],
    place: Path | None,
    steps: StepInterval | None,
    *,
    safe: bool,
    again: bool,
    as_json: bool,
) -> None:
    """Send what RUN recorded to exporters, or write it into files of other programs.

    RUN is a run directory, a directory of runs (the newest one), the id or the name of a run in OTEL_RL_DIR (runs), or
    newest.

    Exporters get the run with its own times, steps and attempts; one without an archive has the rows of its rows.jsonl.
    A second export to the same destination adds what the run has recorded since, and nothing twice. Options of
    exporters come from their own variables, such as WANDB_MODE, and from the settings file, otel-rl.toml. Exits with 1
    if something was not delivered.

    Files have the valid history, or that of a range of steps. Without -o, they are in the run directory, or in the
    working directory if the run directory is not yours. The formats:

    \b
        perfetto  the timeline, for https://ui.perfetto.dev: trace.json.gz
        csv       a file for each table; rows.csv has a line for each step
                  and a column for each metric
        parquet   a file for each table
        atif      trajectories with their messages, for Harbor and others:
                  a file for each; a line for each in -o FILE.jsonl
        run       the other way: RUN is a file with trajectories in ATIF,
                  or a directory of them, such as a job of Harbor; they
                  become a run, by default in OTEL_RL_DIR (runs)/atif
    """  # noqa: D301 - click's mark
    own_process()
    known = [*_FORMATS, *exporters()]
    for name in names:
        if name not in known and ":" not in name:
            raise click.UsageError(f"unknown format or exporter {name!r}{meant(name, known)}")
    kind = next((name for name in names if name in _FORMATS), "")
    if kind and len(names) > 1:
        raise click.UsageError(f"{kind} is a format: give it alone")
    if kind and again:
        raise click.UsageError("files are always written in full: leave --again out")
    if kind == "run":
        if steps is not None:
            raise click.UsageError("a run is made of all trajectories: leave --steps out")
        _read(Path(source), place or runs_directory() / "atif" / Path(source).absolute().stem, as_json=as_json)
        return
    run = _RUN.convert(source, next(param for param in context.command.params if param.name == "source"), context)
    if not kind:
        if steps is not None:
            raise click.UsageError("exporters get the whole run: leave --steps out")
        if place is not None and place.is_file():
            raise click.UsageError(f"{place} is a file: exporters need a directory")
        from otel_rl.cli.late.give import give

        give(run, names, place, again=again, as_json=as_json)
    place = place or place_for(run, _FILES[kind])
    if kind == "perfetto" and not os.access(place.absolute().parent, os.W_OK):
        raise click.ClickException(f"{place.absolute().parent} is not a directory that can be written")
    written = _written(run, kind, place.absolute(), steps, is_safe=safe)
    _show(Exported(files=written), as_json=as_json)
    if kind == "atif" and not any(written.values()) and not as_json:
        say("No messages were recorded: see run.trajectory and otel_rl.init(content=True).", err=True)
    if kind == "perfetto" and not as_json:
        say("Open it in https://ui.perfetto.dev, which keeps it in the browser.", err=True)


def _show(exported: Exported, *, as_json: bool) -> None:
    if as_json:
        say_json(exported)
        return
    for text in exported.refused:
        say(text, err=True)
    for file in exported.files:
        say(file)


def _read(source: Path, place: Path, *, as_json: bool) -> None:
    """Make a run of trajectories; exit with 1 if one of them was refused, or there was none."""
    from otel_rl.look.export import from_atif

    imported = from_atif.read(source, place.absolute())
    files = {str(place.absolute()): imported.trajectories} if imported.trajectories else {}
    refused = (*imported.refused, *(() if files or imported.refused else (f"{source} has no trajectories in ATIF",)))
    _show(Exported(files=files, refused=refused, complete=not refused), as_json=as_json)
    sys.exit(1 if refused else 0)


def _written(run: Path, kind: str, place: Path, steps: tuple[int, int] | None, *, is_safe: bool) -> dict[str, int]:
    """Write the files; return the number of lines or events in each."""
    if is_safe and kind != "csv":
        raise click.UsageError("--safe is for csv")
    from otel_rl.look.export import atif, perfetto, tables
    from otel_rl.look.reader.runs import open_run  # loads NumPy and DuckDB

    opened = open_run(run)
    if kind == "atif":
        return atif.write(opened, place, steps)
    if kind == "perfetto":
        return {str(place): perfetto.write(opened, place, steps)}
    counts = tables.write(opened, place, cast("Literal['csv', 'parquet']", kind), steps, is_safe=is_safe)
    return {str(place / name): count for name, count in counts.items()}
