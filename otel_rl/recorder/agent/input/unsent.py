"""Records that a machine could not send to the head, in the run directory: `unsent/<part>/`.

The part of the machine may be where the head cannot see it. Its agent leaves there what it has not sent when it ends.
`agent --once` on the head's machine takes it from there. Records that the head has already are recognized.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from otel_rl.export import Item
from otel_rl.recorder.directory.directory import UNSENT
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.files.atomic_files import read_json, write_atomically
from otel_rl.recorder.files.modes import make_directory
from otel_rl.recorder.files.own_files import read_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_INDEX = "index.json"
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(list[Item])


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a machine has left; it is written last."""

    files: list[str]  # the files, in order; each has its CRC-32 in its name
    is_last: bool  # whether all processes of the machine had ended: nothing more was recorded


def save(run: Path, part: str, batches: Iterable[Sequence[Item]], *, is_last: bool) -> None:
    """Save items in place of those that were saved before.

    Raises:
        OSError: They cannot be written.
    """
    remove(run, part)
    place = _place_of(run, part)
    make_directory(place.parent)
    make_directory(place)
    files = []
    for number, items in enumerate(batches):
        content = _encode(list(items))
        files.append(f"{number:08d}.{crc32(content):08x}")
        write_atomically(place / files[-1], content)
    # Written last: without it, the files of an agent that is killed here count as nothing
    # (faults/test_undelivered_heads.py).
    write_atomically(place / _INDEX, msgspec.json.encode(Index(files=files, is_last=is_last)))


def index(run: Path, part: str) -> Index | None:
    """Return what a machine has left; `None` if it has left nothing."""
    return read_json(_place_of(run, part) / _INDEX, Index)


def read(run: Path, part: str, left: Index) -> Iterator[list[Item]]:
    """Yield the items of a machine.

    Raises:
        OSError: A file cannot be read, is another user's, or is damaged.
    """
    for name in left.files:
        # The index comes from another machine: a `/` in a name must not lead out of the directory.
        path = _place_of(run, part) / name.replace("/", "_")
        content = read_own(path)
        try:
            items = _decoder.decode(content)
        except UNDECODABLE as error:
            raise OSError(f"{path} is damaged") from error
        if f"{crc32(content):08x}" != name.rpartition(".")[2]:
            raise OSError(f"{path} is damaged")
        yield items


def remove(run: Path, part: str) -> None:
    """Remove what a machine has left."""
    with suppress(OSError):
        (_place_of(run, part) / _INDEX).unlink()  # first: files without it count as nothing
    shutil.rmtree(_place_of(run, part), ignore_errors=True)


def _place_of(run: Path, part: str) -> Path:
    return run / UNSENT / part
