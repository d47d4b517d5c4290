"""The archive on real file systems that are not like a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_rl
from otel_rl.archive import files
from otel_rl.archive.writer import Writer
from otel_rl.export import Row, Span
from otel_rl.setup.parts import ARCHIVE
from tests.faults.nodes import sshfs
from tests.security.test_sinks import case_insensitive

__all__ = ["case_insensitive"]  # a fixture


def check(directory: Path) -> None:
    """Write, merge, seal and thin files, as three writers, and read each item once in between."""
    place, written = directory / ARCHIVE / "node1", 0
    for limit in (1 << 60, 1 << 60, 1):
        writer = Writer(place, limit)
        for step in range(written, written + 40):
            writer.add(Row(step, step + 1, {"loss": step / 7, "LOSS": -0.0}))
            writer.add(Span("rl.phase", f"{step:032x}", f"{step:016x}", "", step, step + 1))
            writer.save()
        written += 40
        assert otel_rl.open_run(directory).rows("loss")["value"].tolist() == [n / 7 for n in range(written)]
    writer.save(seals=True)
    reader = otel_rl.open_run(directory)

    assert reader.rows("loss")["step"].tolist() == list(range(written))
    assert len(reader.rows("LOSS")) == written
    assert (reader.damaged, reader.holes) == ([], [])
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
