"""`otel-rl tag`: the name, tags and notes of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from otel_rl.cli.commands import Verb
from otel_rl.cli.lines import line, safe
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.archive.marking import mark
from otel_rl.recorder.archive.marks import Marks
from otel_rl.recorder.archive.runs import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from otel_rl.cli.lines import Line


class MarkedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its marks."""

    path: str  # the run directory
    id: str  # identity of the run
    project: str  # its project
    name: str  # its display name
    marks: Marks  # the name, tags and notes that people gave it


class MarkedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that were named, each with its marks."""

    runs: tuple[MarkedRun, ...]


@click.command(
    cls=Verb,
    section="look",
    short_help="Give runs a name, tags and notes.",
    examples={
        "tag newest --add good --note 'lr 3e-6 holds'": "a tag and a note",
        "tag newest --name best-so-far --baseline": "a name, which screens and exports use from now on",
        "tag newest": "what the newest run has",
    },
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunArgument(exact=True))
@click.option("--name", help="Their name; an empty one brings back the name that the run began with.")
@click.option("--add", multiple=True, metavar="TAG", help="A tag that they get. Can be given several times.")
@click.option("--remove", multiple=True, metavar="TAG", help="A tag that they lose. Can be given several times.")
@click.option("--note", metavar="TEXT", help="A text, in place of the one before.")
@click.option("--baseline/--no-baseline", default=None, help="Compare others with it, or no longer.")
@click.option("--archive/--unarchive", default=None, help="Hide them from lists, or no longer.")
@shows
def tag(
    runs: tuple[Path, ...],
    name: str | None,
    add: tuple[str, ...],
    remove: tuple[str, ...],
    note: str | None,
    *,
    baseline: bool | None,
    archive: bool | None,
    output: Output,
) -> None:
    """Give runs a name, tags and notes, and print what they have.

    RUN is a run directory, or the id or the name of one run. The marks are in marks.json in the run directory, and only
    its owner can change them. All screens, exports and trackers that are fed later use the name.
    """
    if name and len(runs) > 1:
        raise click.UsageError(f"--name is for one run; {len(runs)} were given")
    changes = (name, note, baseline, archive)
    try:
        if add or remove or any(change is not None for change in changes):
            for run in runs:
                mark(run, name=name, add=add, remove=remove, notes=note, baseline=baseline, archived=archive)
        places = [place_of(run) for run in runs]
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    output.show(MarkedRuns(runs=tuple(map(_marked, places))), lambda _: _lines(places))


def _marked(place: Place) -> MarkedRun:
    return MarkedRun(path=str(place.path), id=place.id, project=place.project, name=place.name, marks=place.marks)


def _lines(places: Sequence[Place]) -> Iterator[Line]:
    for place in places:
        labels = safe(", ".join(place.marks.labels)) or "no tag"
        yield line((f"{safe(place.project)}/{safe(place.name)}", "bold"), f"  {labels}")
        yield from (line(f"  {safe(text)}") for text in place.marks.notes.splitlines())
