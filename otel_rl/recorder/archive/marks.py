"""The marks that people give a run: `marks.json` in its directory, which no process of the training writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import ACTIVE, log_of
from otel_rl.recorder.files.own_files import read_shown

if TYPE_CHECKING:
    from pathlib import Path

FILE = "marks.json"
_MOST_BYTES = 1 << 20
_MOST_TAGS, _MOST_NOTES = 64, 10_000
_Name = Annotated[str, msgspec.Meta(max_length=200, pattern=rf"\A[^{ACTIVE}]*\Z")]
Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=rf"\A[^\s,\"{ACTIVE}]+\Z")]
_Notes = Annotated[str, msgspec.Meta(max_length=_MOST_NOTES, pattern=rf"\A(?:[\n\t]|[^{ACTIVE}])*\Z")]
LIMITS = f"""a name has at most 200 characters on one line, a tag 64 without spaces, commas and quotation marks, notes \
{_MOST_NOTES:,}, a run {_MOST_TAGS} tags, and none has characters that are invisible or act on a terminal"""
_warnings = Occasional(log_of("otel_rl"))


class Marks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The name, tags and notes that people give a run."""

    name: _Name = ""  # shown and sent instead of the name that the run began with; empty without one
    tags: Annotated[tuple[Tag, ...], msgspec.Meta(max_length=_MOST_TAGS)] = ()  # its tags, in alphabetical order
    notes: _Notes = ""  # a text of several lines
    baseline: bool = False  # if true, other runs are compared with it
    archived: bool = False  # if true, lists leave it out

    @property
    def labels(self) -> tuple[str, ...]:
        """Its tags, and `baseline` and `archived` where it is that."""
        kinds = (("baseline", self.baseline), ("archived", self.archived))
        return (*self.tags, *(kind for kind, has in kinds if has))


def read(run: Path) -> Marks:
    """Return the marks of a run.

    Raises:
        OSError: The file is a link, or cannot be read.
        ValueError: The file is damaged.
    """
    try:
        return msgspec.json.decode(read_shown(run / FILE, run, _MOST_BYTES), type=Marks)
    except FileNotFoundError:
        return Marks()
    except UNDECODABLE as error:
        raise ValueError(f"{run / FILE} is not read: {error}") from error


def marks_of(run: Path) -> Marks:
    """Return the marks of a run of anybody; none, with a warning, if the file cannot be read."""
    try:
        return read(run)
    except (OSError, ValueError) as error:
        _warnings.warn(str(error))
        return Marks()
