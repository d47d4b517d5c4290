"""Reports of exhausted memory, as files of the run directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.export import Event
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import make_directory
from otel_rl.recorder.journal.claim import label

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_rl.export import Item

logger = log_of(__name__)


def write_reports(directory: Path, items: Iterable[Item]) -> None:
    """Write each report of exhausted memory among the items to `oom/` in the run directory, as JSON."""
    for item in items:
        if isinstance(item, Event) and item.name == semconv.EVENT_MEMORY_EXHAUSTED:
            report = item.attributes | {"step": item.step, "rank": item.rank, "time_unix_nano": item.time_unix_nano}
            report[semconv.MEMORY_LEDGER] = json.loads(str(item.attributes.get(semconv.MEMORY_LEDGER, "[]")))
            who = label(str(item.attributes.get(semconv.ROLE, "")), item.rank or 0)
            place = directory / "oom" / f"{who}.step{item.step}.json"
            try:
                make_directory(place.parent)
                write_atomically(place, json.dumps(report, indent=1).encode())
            except OSError as error:
                logger.warning("%s: the report cannot be written: %s", place, error)
