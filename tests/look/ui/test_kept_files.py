"""The files that the page keeps are those of runs that are there, and that somebody looks at."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from otel_rl.look.ui import kept_files
from otel_rl.look.ui.kept_files import PAGE, VERDICT, cache_directory, keep, kept_bytes
from tests.look.recorded import Shape, record
from tests.look.ui.pages import served, until


def test_a_removed_run_leaves_nothing(tmp_path: Path, own_cache: Path) -> None:
    """Its verdict goes with it, and the verdicts of others stay."""
    for name in ("a", "b"):
        record(tmp_path / "runs" / name, Shape(steps=3))
    with served(tmp_path / "runs") as page:
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        (gone,) = (line["key"] for line in page.runs()["runs"] if line["directory"] == "a")
        kept = {file.name for file in own_cache.iterdir()}
        shutil.rmtree(tmp_path / "runs" / "a")
        until(lambda: len(page.runs()["runs"]) == 1)

    assert {file.name for file in own_cache.iterdir()} == kept - {f"{gone}{VERDICT}"}


def test_a_file_system_that_is_away(tmp_path: Path, own_cache: Path) -> None:
    """If no run is there any more, their verdicts are kept: they come back with a mount."""
    record(tmp_path / "runs" / "a", Shape(steps=3))
    with served(tmp_path / "runs") as page:
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        (tmp_path / "runs").rename(tmp_path / "away")
        until(lambda: not page.runs()["runs"])

    assert len([*own_cache.iterdir()]) == 1


def test_what_was_not_used_for_long(own_cache: Path) -> None:
    """A start removes files that no server has read for a month; one that was read is in use."""
    directory = cache_directory()
    for key in ("aa", "bb"):
        keep(directory, key, PAGE, b"page")
        os.utime(own_cache / f"{key}{PAGE}", (time.time() - 40 * 24 * 3600,) * 2)

    assert kept_bytes(directory, "aa", PAGE) == b"page"
    cache_directory()
    assert [file.name for file in own_cache.iterdir()] == [f"aa{PAGE}"]


def test_the_size_is_bounded(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that were not used for longest are removed first."""
    monkeypatch.setattr(kept_files, "_MOST_BYTES", 25)
    directory = cache_directory()
    for age, key in enumerate(("aa", "bb", "cc")):
        keep(directory, key, PAGE, bytes(10))
        os.utime(own_cache / f"{key}{PAGE}", (time.time() - 60 * age,) * 2)
    cache_directory()

    assert sorted(file.name for file in own_cache.iterdir()) == [f"aa{PAGE}", f"bb{PAGE}"]
