"""Keeps an archive below its limit: old spans are thinned, everything else stays.

Of the oldest file of spans, the failed ones, the roots of steps, and the slowest of each name stay; of the others,
every eighth trace. A file that was thinned again has every 64th, and so on. The range in the name of a file says how
many spans it had, so that the number of those that were left out is known.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from typing import TYPE_CHECKING
from zlib import crc32

from arro3.core import Array

from otel_rl import semconv
from otel_rl.archive import files
from otel_rl.archive.columns import from_parquet, to_parquet
from otel_rl.archive.tables import SPANS

if TYPE_CHECKING:
    from pathlib import Path

    from arro3.core import RecordBatch

_SHARE = 8
_SLOWEST = 32
"""Spans of each name in a file that always stay."""
_MOST_PASSES = 4


def thin(place: Path, limit_bytes: int) -> None:
    """Thin sealed spans, the oldest and fullest files first, until the archive of a machine fits its limit.

    Raises:
        OSError: A file cannot be read or written now.
    """
    sizes = {path: path.stat().st_size for path in place.rglob("*.parquet")}
    size = sum(sizes.values())
    if size <= limit_bytes:
        return
    for passes in range(_MOST_PASSES):
        for file in files.covering(files.listed(place / SPANS.name)):
            try:
                spans = from_parquet(SPANS, files.read(file))
            except files.DamagedError:  # the reader names it; the others can still be thinned
                continue
            if _passes(file, spans) != passes:
                continue
            kept = chosen(spans, _SHARE ** (passes + 1))
            if len(kept) == spans.num_rows:  # the same file would be written, and then deleted
                continue
            data = to_parquet([spans.take(Array.from_buffer(array("i", kept)))], compression="zstd(1)")
            files.write(file.path.parent, file.first, file.end, data)
            file.path.unlink(missing_ok=True)
            size += len(data) - sizes.get(file.path, 0)
            if size <= limit_bytes:
                return


def chosen(spans: RecordBatch, share: int) -> list[int]:
    """Return the numbers of the lines that stay, in order: one trace of `share`, and what is always worth it."""
    trace_ids, names, errors, durations = (
        spans.column(name).to_pylist() for name in ("trace_id", "name", "error", "duration_ns")
    )
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    kept: set[int] = set()
    for number, (trace_id, name, error) in enumerate(zip(trace_ids, names, errors, strict=True)):
        by_name[name].append(number)
        if error is not None or name == semconv.SPAN_LOOP or crc32(trace_id.encode()) % share == 0:
            kept.add(number)
    for numbers in by_name.values():
        kept.update(sorted(numbers, key=lambda number: -durations[number])[:_SLOWEST])
    return sorted(kept)


def _passes(file: files.File, spans: RecordBatch) -> int:
    """Return how often a file was thinned, by the share of its spans that is left."""
    if spans.num_rows >= file.end - file.first:
        return 0
    return max(1, round(math.log((file.end - file.first) / max(1, spans.num_rows), _SHARE)))
