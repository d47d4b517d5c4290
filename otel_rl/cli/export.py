"""`otel-rl export`: write what a run recorded into files of other programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, cast

import click
import msgspec

from otel_rl.cli.replay import end, give
from otel_rl.cli.runs import Run, runs_directory
from otel_rl.cli.terminal import say, say_json
from otel_rl.journal.modes import own_process

_NAMES = {"perfetto": "trace.json.gz", "csv": "csv", "parquet": "parquet", "atif": "atif"}


class _Written(msgspec.Struct, frozen=True):
    """The number of lines, events or trajectories by file or directory, and why files were not read."""

    files: dict[str, int]
    refused: list[str] = []


@click.command(short_help="Write a run for Perfetto, as CSV, Parquet or ATIF, or send it by OTLP; make a run of ATIF.")
@click.argument("source", metavar="RUN")
@click.option("--to", "kind", required=True, type=click.Choice([*_NAMES, "otlp", "run"]), help="The format.")
@click.option("-o", "--output", "place", type=click.Path(path_type=Path), help="The file or directory to write.")
@click.option("--from", "first", type=int, help="The first step.")
@click.option("--to-step", "last", type=int, help="The last step.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def export(
    context: click.Context,
    source: str,
    kind: str,
    place: Path | None,
    first: int | None,
    last: int | None,
    *,
    as_json: bool,
) -> None:
    """Write what RUN recorded into files of other programs: its valid history, or that of a range of steps.

    RUN is a run directory, a directory of runs (the newest one), the id or the name of a run in OTEL_RL_DIR (runs), or
    newest. Without -o, the files are in the run directory, or in the working directory if that one cannot be written.

    \b
    perfetto  the timeline, for https://ui.perfetto.dev: trace.json.gz
    csv       a file for each table; rows.csv has a line for each step and a column for each metric
    parquet   a file for each table
    atif      trajectories with their messages, for Harbor and others: a file for each; a line for each in -o FILE.jsonl
    otlp      spans, rows and events of all attempts, to the address in OTEL_EXPORTER_OTLP_ENDPOINT
    run       the other way: RUN is a file with trajectories in ATIF, or a directory of them, such as a job of Harbor;
              they become a run, by default in OTEL_RL_DIR (runs)/atif
    """  # noqa: D301 - click's mark
    own_process()
    if kind == "run":
        if first is not None or last is not None:
            raise click.UsageError("a run is made of all trajectories: leave steps out")
        _read(Path(source), place or runs_directory() / "atif" / Path(source).absolute().stem, as_json=as_json)
        return
    run = Run().convert(source, next(one for one in context.command.params if one.name == "source"), context)
    if kind == "otlp":
        if place is not None or first is not None or last is not None:
            raise click.UsageError("otlp sends the whole run to OTEL_EXPORTER_OTLP_ENDPOINT: leave -o and steps out")
        from otel_rl.agent.process import log_to_stderr

        log_to_stderr()
        end(is_complete=give(run, ["otlp"], None, again=True, as_json=as_json))
    steps = None if first is None and last is None else slice(first or 0, None if last is None else last + 1)
    place = place or (run if os.access(run, os.W_OK) else Path()) / _NAMES[kind]
    if kind == "perfetto" and not os.access(place.absolute().parent, os.W_OK):
        raise click.ClickException(f"{place.absolute().parent} is not a directory that can be written")
    found = _written(run, kind, place.absolute(), steps)
    if as_json:
        say_json(_Written(found))
        return
    for file in found:
        say(file)
    if kind == "atif" and not any(found.values()):
        say("No messages were recorded: see run.trajectory and otel_rl.init(content=True).", err=True)
    if kind == "perfetto":
        say("Open it in https://ui.perfetto.dev, which keeps it in the browser.", err=True)


def _read(source: Path, place: Path, *, as_json: bool) -> None:
    """Make a run of trajectories; exit with 1 if one of them was refused, or there was none."""
    from otel_rl.view.export import from_atif

    found = from_atif.read(source, place.absolute())
    files = {str(place.absolute()): found.trajectories} if found.trajectories else {}
    if as_json:
        say_json(_Written(files, found.refused))
    else:
        for text in found.refused or ([] if files else [f"{source} has no trajectories in ATIF"]):
            say(text, err=True)
        for file in files:
            say(file)
    sys.exit(1 if found.refused or not files else 0)


def _written(run: Path, kind: str, place: Path, steps: slice | None) -> dict[str, int]:
    """Write the files; return the number of lines or events in each."""
    from otel_rl.archive.reader import open_run  # loads NumPy and DuckDB
    from otel_rl.view.export import atif, perfetto, tables

    opened = open_run(run)
    if kind == "atif":
        return atif.write(opened, place, steps)
    if kind == "perfetto":
        return {str(place): perfetto.write(opened, place, steps)}
    counts = tables.write(opened, place, cast("Literal['csv', 'parquet']", kind), steps)
    return {str(place / name): count for name, count in counts.items()}
