"""The messages of spans, in the archives of all machines of a run: a trajectory and its span can be on two of them."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, Any
from zlib import crc32

from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.columns import batches_in
from otel_rl.recorder.archive.runs import machines
from otel_rl.recorder.archive.tables import MESSAGES
from otel_rl.recorder.convert.gen_ai_messages import MessageText
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set
    from pathlib import Path

    from arro3.core import RecordBatch

    from otel_rl.recorder.archive.files import File

logger = log_of(__name__)
_LINES = 1024
"""Lines that are decoded at once: a message can have thousands of tokens, each in 30 bytes."""
_TRIES = 3
_PLACE = ("attempt", "step", "number")


class MessageIndex:
    """Which file has the messages of which spans: each is read once for the index, and again for spans that it has.

    Args:
        archive: The archive of a run.
    """

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._span_ids: dict[Path, array[int]] = {}  # by file, in 4 bytes for each span; two ids can have one number

    def of_spans(self, span_ids: Set[str]) -> dict[str, list[MessageText]]:
        """Return the messages of spans in their order, by the ids of the spans, without those in damaged files."""
        for _ in range(_TRIES):
            try:
                return self._read(span_ids)
            except FileNotFoundError:  # a young file became part of a sealed one
                continue
        return {}

    def _read(self, span_ids: Set[str]) -> dict[str, list[MessageText]]:
        wanted = {*_numbers(span_ids)}
        messages: defaultdict[str, list[tuple[tuple[int, ...], MessageText]]] = defaultdict(list)
        for file in self._files():
            if wanted.isdisjoint(self._span_ids[file.path]):
                continue
            for span_id, place, text in (line for batch in _batches(file) for line in _lines(batch, span_ids)):
                messages[span_id].append((place, text))
        return {span_id: [text for _, text in sorted(lines)] for span_id, lines in messages.items()}

    def _files(self) -> list[File]:
        """Return the files that there are, with those that are new in the index."""
        folders = [self._archive / machine for machine in machines(self._archive)]
        listed = [file for folder in folders for file in files.of_table(folder, MESSAGES.name)]
        known = self._span_ids
        self._span_ids = {file.path: known[file.path] if file.path in known else _indexed(file) for file in listed}
        return listed


def _indexed(file: File) -> array[int]:
    try:
        return array("I", {number for batch in _batches(file) for number in _numbers(_ids(batch))})
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        logger.warning("%s", error)
        return array("I")


def _numbers(span_ids: Iterable[str]) -> Iterator[int]:
    return (crc32(span_id.encode()) for span_id in span_ids)


def _batches(file: File) -> Iterator[RecordBatch]:
    return batches_in(MESSAGES, intact.read(file), _LINES)


def _ids(batch: RecordBatch) -> list[str]:
    return list(batch.column("span_id").to_pylist())


def _lines(batch: RecordBatch, span_ids: Set[str]) -> Iterator[tuple[str, tuple[int, ...], MessageText]]:
    """Yield the span, the place and the content of each message of spans."""
    ids = _ids(batch)
    numbers = [number for number, span_id in enumerate(ids) if span_id in span_ids]
    if not numbers:
        return
    values: dict[str, Any] = {
        name: batch.column(name).to_pylist() for name in (*_PLACE, *MessageText._fields) if name in batch.column_names
    }
    values.setdefault("calls", [None] * len(ids))
    for number in numbers:
        author, name, text, cut, calls = (values[field][number] for field in MessageText._fields)
        yield (
            ids[number],
            tuple(values[field][number] for field in _PLACE),
            MessageText(author, name, text, cut, calls or ""),
        )
