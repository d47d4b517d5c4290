"""The archive on real file systems that are not like a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_rl.export import Row, Span
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.tables import ROWS, SPANS
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE
from tests.file_systems import sshfs
from tests.recorder.archive.items import everything
from tests.security.test_sinks import case_insensitive

__all__ = ["case_insensitive"]  # a fixture


def check(directory: Path) -> None:
    """Write, merge, seal and thin files, as three writers, and read each item once in between."""
    place, written = directory / ARCHIVE / "node1", 0
    for limit in (1 << 60, 1 << 60, 1):
        writer = ArchiveWriter(place, limit)
        for step in range(written, written + 40):
            writer.add(Row(step, step + 1, {"loss": step / 7, "LOSS": -0.0}))
            writer.add(Span("rl.phase", f"{step:032x}", f"{step:016x}", "", step, step + 1))
            writer.save()
        written += 40
        rows = [item for item in everything(place) if isinstance(item, Row)]
        assert [row.values for row in rows] == [{"loss": n / 7, "LOSS": -0.0} for n in range(written)]
    writer.save(seals=True)

    assert [item.step for item in everything(place) if isinstance(item, Row)] == list(range(written))
    assert [files.holes(files.of_table(place, table.name)) for table in (ROWS, SPANS)] == [[], []]
    assert not list((place / files.TAIL).rglob("*.parquet"))


@pytest.mark.slow
def test_sshfs(tmp_path: Path) -> None:
    """A directory over SFTP, where a directory cannot be synchronized."""
    with sshfs(tmp_path) as shared:
        check(shared)


@pytest.mark.slow
def test_a_file_system_that_ignores_case(case_insensitive: Path) -> None:
    """Names of files differ by more than case; metrics may differ by case alone."""
    check(case_insensitive)
