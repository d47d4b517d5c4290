"""`otel_rl.mark`: give a run a name that stays, tags and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.archive.marks import FILE, LIMITS, Marks, read
from otel_rl.recorder.archive.runs import place_of
from otel_rl.recorder.files.file_systems import is_shared
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.files.outputs import write_into
from otel_rl.recorder.files.own_files import check_own
from otel_rl.recorder.files.private_directories import private_directory

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable


def mark(
    run: str | os.PathLike[str],
    *,
    name: str | None = None,
    add: str | Iterable[str] = (),
    remove: str | Iterable[str] = (),
    notes: str | None = None,
    baseline: bool | None = None,
    archived: bool | None = None,
) -> Marks:
    """Change the marks of a run, which all screens, exports and trackers use from then on; return all of its marks.

    Arguments that are not given change nothing. Two processes at once lose nothing of each other; on a file system that
    machines share, this holds for those of one machine.

    Args:
        run: The run directory.
        name: Its name; an empty one brings back the name that the run began with.
        add: Tags that it gets; a text is one tag.
        remove: Tags that it loses.
        notes: A text of several lines, in place of the one before.
        baseline: If true, other runs are compared with it.
        archived: If true, lists leave it out.

    Raises:
        FileNotFoundError: It is not a run directory.
        ForeignError: It belongs to another user, or others can write it.
        OSError: The file of the marks cannot be read or written.
        ValueError: The marks are too long, or have characters that act on a terminal; or their file is damaged.
    """
    place = place_of(run).path.resolve()
    check_own(place)
    # A lock of a directory needs a file system of this machine.
    with Lock(private_directory() if is_shared(place) else place):
        before = read(place)
        after = Marks(
            name=before.name if name is None else name.strip(),
            tags=tuple(sorted({*before.tags, *_tags(add)} - {*_tags(remove)})),
            notes=before.notes if notes is None else notes.strip(),
            baseline=before.baseline if baseline is None else baseline,
            archived=before.archived if archived is None else archived,
        )
        if after != before:
            write_into(place, FILE, _encoded(after))
    return after


def _tags(given: str | Iterable[str]) -> Iterable[str]:
    return (given,) if isinstance(given, str) else given


def _encoded(marks: Marks) -> bytes:
    try:
        content = msgspec.json.encode(marks)
        msgspec.json.decode(content, type=Marks)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ValueError(f"invalid marks: {LIMITS}") from error
    return content
