"""A run as it was read for its page: facts, sections and parts. Readings of ended runs are kept on disk."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.insight.facts import Facts
from otel_rl.look.page.body import Piece, is_incomplete, pieces_of
from otel_rl.look.page.moment import PARTS, RunMoment
from otel_rl.look.ui.changes import Fingerprint
from otel_rl.look.ui.kept_files import PAGE, kept_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DIGEST_BYTES = 8


class PageSection(msgspec.Struct, frozen=True, kw_only=True):
    """A section of the page of a run."""

    id: str  # its id
    title: str  # its title
    digest: str  # a text that differs when its content does
    html: str | None  # its content; `None` if whoever asks has it


class RunReading(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was read at a moment."""

    made_by: str  # the version of otel-rl that read it
    files: Fingerprint  # when its files had changed
    made: int  # the moment, in Unix nanoseconds
    title: str  # the title of its page
    facts: Facts  # what it says
    is_incomplete: bool  # whether lines of its archive are missing
    sections: tuple[PageSection, ...]  # its sections below the verdict
    parts: dict[str, tuple[str, bytes]]  # the data of its parts, each with its digest


def readings_of(moment: RunMoment, files: Fingerprint) -> Iterator[RunReading]:
    """Yield what was read of a run after each of its parts; the last one is whole."""
    reading = RunReading(
        made_by=version("otel-rl"),
        files=files,
        made=moment.made,
        title=moment.title,
        facts=moment.facts,
        is_incomplete=is_incomplete(moment),
        sections=tuple(map(section_of, pieces_of(moment))),
        parts={},
    )
    yield reading
    for name in PARTS:
        text = moment.part(name).encode()
        reading = msgspec.structs.replace(reading, parts={**reading.parts, name: (digest_of(text), text)})
        yield reading


def kept_reading(cache: Path | None, key: str, files: Fingerprint) -> RunReading | None:
    """Return what a server has read of these files; `None` without any."""
    content = kept_bytes(cache, key, PAGE)
    try:
        reading = msgspec.msgpack.decode(content, type=RunReading) if content else None
    except msgspec.DecodeError:  # of another version, or cut
        return None
    is_valid = reading is not None and reading.files == files and reading.made_by == version("otel-rl")
    return reading if is_valid else None


def section_of(piece: Piece) -> PageSection:
    """Return a piece of the report as a section of the page."""
    return PageSection(id=piece.id, title=piece.title, digest=digest_of(piece.html.encode()), html=str(piece.html))


def digest_of(content: bytes) -> str:
    """Return a text that differs when a content does."""
    return hashlib.sha256(content).hexdigest()[: 2 * _DIGEST_BYTES]
