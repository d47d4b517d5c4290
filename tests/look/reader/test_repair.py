"""Archives that lost files, or have some twice, and are written on: what was whole stays, and each hole is named."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

import otel_rl
from otel_rl.export import Environment, Row
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.runs import places_of
from otel_rl.recorder.archive.writer import ArchiveWriter


def write(place: Path, steps: range, dice: random.Random) -> None:
    """Write a row for each step; sometimes save, sometimes seal."""
    writer = ArchiveWriter(place / "archive" / "local", 1 << 60)
    for step in steps:
        writer.add(Row(step, step + 1, {"x": float(step)}))
        if dice.random() < 0.3:
            writer.save(seals=dice.random() < 0.4)
    writer.save(seals=dice.random() < 0.5)


def values(place: Path) -> list[float]:
    """Return what a reader finds, each as often as it is there."""
    return sorted(otel_rl.open_run(place).rows("x")["value"].tolist())


def test_a_writer_that_was_killed_between_two_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unfinished file is deleted, since it was noted; no hole is named."""
    write_file, count = files.write, 0

    def killed(*args: object) -> Path:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return write_file(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "write", killed)
    writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    writer.add(Row(0, 1, {"x": 0.0}))
    with pytest.raises(KeyboardInterrupt):
        writer.save(seals=True)
    monkeypatch.undo()
    assert len([*tmp_path.glob("archive/local/rows/*.parquet")]) == 1

    ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
    assert [*tmp_path.glob("archive/local/rows/*.parquet")] == []
    write(tmp_path, range(3), random.Random(0))
    assert values(tmp_path) == [0.0, 1.0, 2.0]
    assert otel_rl.open_run(tmp_path).holes == []


def test_the_newest_file_of_steps_is_gone(tmp_path: Path) -> None:
    """Its values stay, the items that come do not get their numbers, and the hole is named."""
    for steps in (range(3), range(3, 6)):
        writer = ArchiveWriter(tmp_path / "archive" / "local", 1 << 60)
        writer.add(*(Row(step, step + 1, {"x": float(step)}) for step in steps))
        writer.save(seals=True)
    gone = files.listed(tmp_path / "archive" / "local" / "steps")[-1].path
    kept = gone.read_bytes()
    gone.unlink()
    write(tmp_path, range(6, 8), random.Random(1))

    assert values(tmp_path) == [0.0, 1.0, 2.0, 6.0, 7.0]
    assert [(hole.table, hole.first, hole.end) for hole in otel_rl.open_run(tmp_path).holes] == [
        ("rows", 3, 6),
        ("steps", 3, 6),
    ]
    gone.write_bytes(kept)
    assert values(tmp_path) == [float(step) for step in range(8)]


def test_the_last_table_is_gone(tmp_path: Path) -> None:
    """A writer that continues without it does not take the archive for deleted, and what comes is read."""
    write(tmp_path, range(40), random.Random(1))
    place = tmp_path / "archive" / "local"
    for folder in (place / "steps", place / "tail" / "steps"):
        shutil.rmtree(folder, ignore_errors=True)
    writer = ArchiveWriter(place, 1 << 60)

    assert writer.is_in_place()
    writer.add(Row(40, 41, {"x": 40.0}))
    writer.save()
    assert writer.is_in_place()
    assert values(tmp_path) == [40.0]
    assert [(hole.table, hole.first, hole.end) for hole in otel_rl.open_run(tmp_path).holes] == [
        ("rows", 0, 40),
        ("steps", 0, 40),
    ]


def test_a_machine_whose_name_is_no_text(tmp_path: Path) -> None:
    """It is left out; the run, and others in its directory, are read."""
    write(tmp_path / "one", range(5), random.Random(1))
    write(tmp_path / "other", range(3), random.Random(1))
    archive = tmp_path / "one" / "archive"
    shutil.copytree(archive / "local", archive / os.fsdecode(b"\xff\xfe"))
    shutil.rmtree(archive / "local")

    assert values(tmp_path / "one") == []
    assert len(otel_rl.open_runs(tmp_path).rows("x")) == 3


def test_a_link_to_a_run_of_the_same_directory(tmp_path: Path) -> None:
    """Verbs take the run by its own path, and not by a link that somebody put next to it."""
    write(tmp_path / "runs" / "run", range(3), random.Random(1))
    (tmp_path / "runs" / "alias").symlink_to("run")

    assert [place.path.name for place in places_of(tmp_path / "runs")] == ["run"]


def test_a_copy_of_a_machine(tmp_path: Path) -> None:
    """A folder that was copied next to its original, and is behind it, doubles nothing."""
    archive = tmp_path / "archive"
    began = ArchiveWriter(archive / "local", 1 << 60)
    began.add(Environment(0, 1, "node1", {}))
    began.save(seals=True)
    write(tmp_path, range(40), random.Random(1))
    shutil.copytree(archive / "local", archive / "local (1)")
    write(tmp_path, range(40, 80), random.Random(1))
    shutil.copytree(archive / "local", archive / "another copy")

    assert values(tmp_path) == [float(step) for step in range(80)]


def test_two_machines_with_equal_values(tmp_path: Path) -> None:
    """Both are read: nothing that they wrote names one machine."""
    for machine in ("node1", "node2"):
        writer = ArchiveWriter(tmp_path / "archive" / machine, 1 << 60)
        writer.add(Row(0, 1, {"x": 1.0}))
        writer.add(Environment(0, 1, machine, {}))
        writer.save(seals=True)

    assert values(tmp_path) == [1.0, 1.0]
