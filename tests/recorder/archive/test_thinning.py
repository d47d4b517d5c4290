"""Archives above their limit: old spans go, and what is always worth it stays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from otel_rl.export import Message, Row, Span
from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.columns import SEALED, from_parquet, to_parquet
from otel_rl.recorder.archive.notes import steps_in
from otel_rl.recorder.archive.tables import KINDS, MESSAGES, ROWS, SPANS
from otel_rl.recorder.archive.writer import ArchiveWriter, read


def spans_of(place: Path) -> list[Span]:
    return [
        item
        for file in files.of_table(place, SPANS.name)
        for item in read(place, (SPANS,), file)
        if isinstance(item, Span)
    ]


def write(place: Path, limit: int, number: int = 4000) -> list[Span]:
    """Write spans of many traces in four sealed files, and rows."""
    spans = [
        Span(f"rl.phase{n % 2}", f"{n // 4:032x}", f"{n:016x}", "", n, 2 * n + 1, error="no" if n % 500 == 0 else None)
        for n in range(number)
    ]
    writer = ArchiveWriter(place, limit)
    for n, span in enumerate(spans):
        writer.add(span)
        if n % 100 == 0:
            writer.add(Row(n, n, {"x": float(n)}))
        if n % (number // 4) == number // 4 - 1:
            writer.save(seals=True)
    return spans


def test_what_stays(tmp_path: Path) -> None:
    """Failed spans, the slowest of each name, whole traces of the rest, and every row; what went is known."""
    spans = write(tmp_path / "node1", 30_000)
    kept = spans_of(tmp_path / "node1")
    tables = KINDS[Row]
    steps = files.of_table(tmp_path / "node1", tables[-1].name)
    rows = [row for file in steps for row in read(tmp_path / "node1", tables, file)]
    ranges = files.of_table(tmp_path / "node1", SPANS.name)

    assert len(kept) < len(spans)
    assert {span.span_id for span in spans if span.error} <= {span.span_id for span in kept}
    assert spans[-1] in kept
    assert len(rows) == 40
    assert ranges[-1].end == len(spans)
    assert files.holes(ranges) == []


def test_one_trajectory_of_a_file_always_stays(tmp_path: Path) -> None:
    """However small the limit is, a file keeps the messages of a trajectory: an empty one would read as damaged."""
    place = tmp_path / "node1"
    writer = ArchiveWriter(place, 1)
    for number in range(4):
        trace_id, span_id = f"{number + 1:032x}", f"{number + 1:016x}"
        writer.add(Message(0, 1, number, "", 0, trace_id, span_id, 0, "user", "", "a text"))
    writer.save(seals=True)

    (file,) = files.of_table(place, MESSAGES.name)
    assert len(list(read(place, (MESSAGES,), file))) == 1


def test_a_limit_that_cannot_be_reached(tmp_path: Path) -> None:
    """Spans that always stay are thinned no further, and no file is lost."""
    write(tmp_path / "node1", 1)
    first = spans_of(tmp_path / "node1")
    for _ in range(3):
        writer = ArchiveWriter(tmp_path / "node1", 1)
        writer.add(Row(9999, 9999, {"x": 0.0}))
        writer.save(seals=True)

    assert files.holes(files.of_table(tmp_path / "node1", SPANS.name)) == []
    assert {span.span_id for span in spans_of(tmp_path / "node1")} <= {span.span_id for span in first}
    assert {span.span_id for span in first if span.error} <= {span.span_id for span in spans_of(tmp_path / "node1")}
    assert files.of_table(tmp_path / "node1", ROWS.name)


def test_a_limit_that_cannot_be_reached_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of spans that cannot become smaller are not read again, by the next writer either."""
    write(tmp_path / "node1", 1)
    for _ in range(2):
        writer = ArchiveWriter(tmp_path / "node1", 1)
        writer.add(Row(9999, 9999, {"x": 0.0}))
        writer.save(seals=True)
    read_files, read_again = list[str](), intact.read
    monkeypatch.setattr(intact, "read", lambda file: read_files.append(file.path.parent.name) or read_again(file))
    for again in (writer, writer, ArchiveWriter(tmp_path / "node1", 1)):
        again.add(Row(9999, 9999, {"x": 0.0}))
        again.save(seals=True)

    assert SPANS.name not in read_files


def test_a_writer_that_was_killed_before_it_deleted_the_fuller_file(tmp_path: Path) -> None:
    """A reader sees each span once, and the next writer deletes the file that was thinned."""
    place = tmp_path / "archive" / "node1"
    write(place, 1 << 60)
    fuller = {file.path: file.path.read_bytes() for file in files.listed(place / SPANS.name)}
    writer = ArchiveWriter(place, 1)
    writer.add(Row(9999, 9999, {"x": 0.0}))
    writer.save(seals=True)
    thinned = {file.path for file in files.listed(place / SPANS.name)}
    for path, data in fuller.items():
        path.write_bytes(data)
    found = [span.span_id for span in spans_of(place)]
    ArchiveWriter(place, 1)

    assert len(found) == len(set(found))
    assert {file.path for file in files.listed(place / SPANS.name)} == thinned


def test_two_files_of_one_range(tmp_path: Path) -> None:
    """Neither is deleted if their notes do not say that one of them is the other, thinned."""
    place = tmp_path / "archive" / "node1"
    write(place, 1 << 60)
    file = files.listed(place / SPANS.name)[0]
    lines = from_parquet(SPANS, intact.read(file))
    files.write(file.path.parent, file.first, file.end, to_parquet(SPANS, [lines.slice(0, 1)], compression=SEALED))
    before = {file.path for file in files.listed(place / SPANS.name)}
    ArchiveWriter(place, 1 << 60)

    assert {file.path for file in files.listed(place / SPANS.name)} == before


def test_a_damaged_file_is_passed_over(tmp_path: Path) -> None:
    """It stays as it is, and the others are thinned."""
    write(tmp_path / "node1", 1 << 60)
    damaged, *others = (file.path for file in files.listed(tmp_path / "node1" / SPANS.name))
    content = damaged.read_bytes()[:-9] + b"damage..!"
    damaged.write_bytes(content)
    writer = ArchiveWriter(tmp_path / "node1", 1)
    writer.add(Row(9999, 9999, {"x": 0.0}))
    writer.save(seals=True)

    assert damaged.read_bytes() == content
    assert not any(path.exists() for path in others)
    assert files.holes(files.listed(tmp_path / "node1" / SPANS.name)) == []


def test_old_messages_are_thinned_first(tmp_path: Path) -> None:
    """Whole trajectories stay, one of eight, before any span goes; what the newest steps have stays."""
    place = tmp_path / "node1"
    writer = ArchiveWriter(place, 600_000)
    tokens = [Random(n).randbytes(1200) for n in range(800)]
    for n in range(800):
        where = (f"{n // 2:032x}", f"{n // 2:016x}", n % 2)
        writer.add(Message(0, n // 8, n, "", 0, *where, "assistant", "", f"text {n}", tokens=tokens[n]))
        writer.add(Span("rl.phase", *where[:2], "", n, n + 1))
        if n % 200 == 199:
            writer.save(seals=True)
    found = files.of_table(place, MESSAGES.name)
    kept = [item for file in found for item in read(place, (MESSAGES,), file) if isinstance(item, Message)]
    of_each = Counter(one.trace_id for one in kept)

    assert 100 < len(kept) < 800
    assert set(of_each.values()) == {2}
    assert all(one.tokens == tokens[int(one.text.split()[1])] for one in kept)
    assert {f"{n:032x}" for n in range(300, 400)} <= of_each.keys()
    assert len(spans_of(place)) == 800
    assert files.holes(found) == []
    assert [steps_in(file.path) for file in found][-1] == range(75, 100)
    assert None not in [steps_in(file.path) for file in found]
