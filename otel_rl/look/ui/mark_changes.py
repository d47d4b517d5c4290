"""Marks from the page: names, tags, notes, baseline and archived, and the deletion of runs: `POST run/KEY/marks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.archive.marking import mark
from otel_rl.recorder.archive.marks import Marks
from otel_rl.recorder.archive.removal import RefusedError, content_of, remove
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.otlp.answers import FORBIDDEN, MALFORMED, Refusal

if TYPE_CHECKING:
    from pathlib import Path


class MarkedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of a run, for whoever changes them."""

    name: str  # its name
    first_name: str  # the name that it began with; empty if it is unknown
    marks: Marks


class MarkChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a run as `otel-rl tag` and `otel-rl rm` make it; what is not given stays as it is."""

    name: str | None = None  # its name; an empty one brings back the name that the run began with
    add: tuple[str, ...] = ()  # tags that it gets
    remove: tuple[str, ...] = ()  # tags that it loses
    notes: str | None = None  # a text of several lines
    baseline: bool | None = None  # if true, other runs are compared with it
    archived: bool | None = None  # if true, lists leave it out
    delete: bool = False  # if true, the run is deleted


class RunRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """The question before a run is deleted."""

    title: str = ""  # project and name of the run
    described: str = ""  # its size and content, and which exporters have not got everything
    refused: str = ""  # why it is not deleted; empty if it can be


def removal_of(run: Path) -> RunRemoval:
    """Return what somebody has to know who deletes a run."""
    try:
        content = content_of(run)
    except (RefusedError, PermissionError) as error:
        return RunRemoval(refused=str(error))
    return RunRemoval(title=content.title, described=content.described)


def changed(run: Path, body: bytes) -> Marks | None:
    """Make a change that was posted, and return the marks of the run; `None` if it was deleted.

    Raises:
        Refusal: It cannot be read, the marks are too long, or the run is not one that this user can change.
        FileNotFoundError: The run is there no more.
    """
    try:
        change = msgspec.json.decode(body, type=MarkChange)
    except UNDECODABLE as error:
        raise Refusal(MALFORMED, f"the change cannot be read: {error}") from error
    try:
        if change.delete:
            remove(run)
            return None
        return mark(
            run,
            name=change.name,
            add=change.add,
            remove=change.remove,
            notes=change.notes,
            baseline=change.baseline,
            archived=change.archived,
        )
    except FileNotFoundError:
        raise
    except (RefusedError, OSError) as error:
        raise Refusal(FORBIDDEN, f"the run is not changed: {error}") from error
    except ValueError as error:
        raise Refusal(MALFORMED, str(error)) from error
