"""Makes the outbox of a part from the archive: of a machine that is gone, or whose part was removed.

The archive has every item, and says how many of each kind an exporter has. Records that the agent had not read, or not
saved in the archive yet, are in the part alone.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.agent.steps.state import Checkpoint, State
from otel_rl.recorder.archive import delivered
from otel_rl.recorder.archive.now import Now
from otel_rl.recorder.archive.now import place_of as now_of
from otel_rl.recorder.archive.replay import Replay, totals
from otel_rl.recorder.delivery.outbox import Outbox, identity
from otel_rl.recorder.delivery.progress import Cursor, cursor_file
from otel_rl.recorder.directory import parts
from otel_rl.recorder.directory.directory import ATTEMPTS
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import read_json, write_atomically
from otel_rl.recorder.journal.claim import attempt_of, is_journal, mark_delivered, noted
from otel_rl.recorder.journal.segments import segment_numbers, segment_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from otel_rl.recorder.archive.delivered import Counts
    from otel_rl.recorder.directory.directory import Manifest, RunDirectory

logger = log_of(__name__)
UNLIMITED_BYTES = 1 << 62
ARCHIVE_EXPORTER = "archive"
"""The name of the exporter that has written the items."""
_BATCH = 64
_BEGUN = ".refill"
"""A file in a part whose outbox is incomplete, since the process that made it was killed."""


def progress(run: Path, machine: str, manifest: Manifest) -> dict[str, Counts] | None:
    """Return how many items of the archive each exporter has, by kind; `None` if the machine has no archive."""
    now = read_json(now_of(run, machine), Now)
    if now is None or not any(name == ARCHIVE_EXPORTER for name, _ in manifest.exporters):
        return None
    elsewhere = delivered.read(run, machine)
    own = {exporter.name: exporter.delivered for exporter in now.exporters}
    given = elsewhere.exporters if elsewhere is not None else {}
    counts = {name: delivered.most(own.get(name, {}), given.get(name, {})) for name, _ in manifest.exporters}
    counts[ARCHIVE_EXPORTER] = delivered.most(counts[ARCHIVE_EXPORTER], totals(run / ARCHIVE / machine))
    return counts


def refill(run: Path, machine: str, part: Path, counts: Mapping[str, Counts]) -> int:
    """Write what an exporter lacks into the new outbox of a part, and the cursors; return how many items are missing.

    `counts` has the number of items of each kind that an exporter has; that of the archive has all.

    Raises:
        OSError: It cannot be written, or the archive cannot be read.
    """
    parts.remake(part)
    # Until it is gone again, the next agent does not trust the outbox: a killed refill has written half of it
    # (faults/test_undelivered.py).
    write_atomically(part / _BEGUN, b"")
    for number in segment_numbers(part / parts.OUTBOX):
        segment_path(part / parts.OUTBOX, number).unlink()
    outbox = Outbox(part / parts.OUTBOX, UNLIMITED_BYTES)
    checkpoint = msgspec.msgpack.encode(Checkpoint({}, State()))
    every = counts[ARCHIVE_EXPORTER]
    replay = Replay(run / ARCHIVE / machine, delivered.least(*counts.values()), every)
    items = iter(replay)
    written: Counter[str] = Counter()
    has: dict[str, Counter[str]] = {name: Counter() for name in counts}
    while batch := list(islice(items, _BATCH)):
        outbox.append([item for _, _, item in batch], checkpoint)
        written.update(kind for kind, _, _ in batch)
        for name, of_exporter in counts.items():
            has[name].update(kind for kind, number, _ in batch if number < of_exporter.get(kind, 0))
    outbox.close()
    # Items that are missing count as if they had been before the others, so that the next one has the right number.
    before = {kind: total - written[kind] for kind, total in every.items()}
    for name, of_exporter in has.items():
        has_before = {kind: before[kind] + count for kind, count in of_exporter.items()}
        cursor = Cursor(outbox=outbox.id, passed=before, has=has_before)
        write_atomically(part / parts.CURSORS / cursor_file(name), msgspec.json.encode(cursor))
    (part / _BEGUN).unlink()
    return replay.missing


def catch_up(directory: RunDirectory, manifest: Manifest) -> int:
    """Continue where the machine that fed exporters from the archive meanwhile has ended, and if the part was removed.

    Return how many items are missing in the archive, if the part was made of it.

    Raises:
        RuntimeError: It is at work now.
        OSError: Something cannot be read or written.
    """
    run, machine = directory.path, directory.host
    if who := delivered.feeder(run, machine):
        raise RuntimeError(f"{who} delivers from the archive of {machine} now")
    elsewhere, place = delivered.read(run, machine), delivered.place_of(run, machine)
    counts, missing = progress(run, machine, manifest), 0
    if counts is None:
        return 0
    if _was_removed(directory):
        missing = refill(run, machine, directory.local, counts)
        logger.info("the agent continues from %s%s", place.parent, f" without {missing} item(s)" if missing else "")
        if has_everything(run, machine) and not missing:  # nothing was lost with the journals
            mark_delivered(directory.attempts, noted(directory.attempts).get(machine, ()))
    elif elsewhere is not None and not elsewhere.missing:
        _pass_over(directory, elsewhere.exporters, counts[ARCHIVE_EXPORTER])
    # Last: if the agent is killed before, the next one passes over the same items once more, to the same place.
    place.unlink(missing_ok=True)
    return missing


def has_everything(run: Path, machine: str) -> bool:
    """Return whether the archive has all that is known to be recorded on a machine."""
    now = read_json(now_of(run, machine), Now)
    if now is None or not now.has_everything:
        return False
    last = max((process.attempt for process in now.processes), default=-1)
    return all(attempt_of(name) <= last for name in noted(run / ATTEMPTS).get(machine, ()))


def _was_removed(directory: RunDirectory) -> bool:
    """Return whether nothing is left of what the machine recorded: neither a whole outbox nor a journal."""
    now = read_json(now_of(directory.path, directory.host), Now)
    last = max((process.attempt for process in now.processes), default=-1) if now is not None else -1
    names = [path.name for path in directory.journals.iterdir() if not path.name.startswith(".")]
    has_journals = any(not is_journal(name) or attempt_of(name) <= last for name in names)
    has_outbox = segment_numbers(directory.outbox) and not (directory.local / _BEGUN).exists()
    return not (has_journals or has_outbox)


def _pass_over(directory: RunDirectory, given: Mapping[str, Counts], saved: Counts) -> None:
    """Move the cursors of exporters that have the whole archive after the items that are in the archive."""
    own = read_json(directory.cursors / cursor_file(ARCHIVE_EXPORTER), Cursor)
    if own is None or own.outbox != identity(directory.outbox):
        return
    for name, counts in given.items():
        place = directory.cursors / cursor_file(name)
        before = read_json(place, Cursor)
        if before is None or before.outbox != own.outbox or delivered.most(counts, saved) != counts:
            continue
        if before.position < own.position:
            write_atomically(place, msgspec.json.encode(own))
