"""Directories that every user can reach, unlike those of pytest, and a copy of a run that has ended."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.files.modes import share_with
from tests.collector import wait_for


@pytest.fixture
def crowded() -> Iterator[Path]:
    """Return a directory like `/tmp`, in which every user can make files; each keeps his own modes."""
    place = Path(tempfile.mkdtemp(prefix="crowded.", dir="/tmp"))
    place.chmod(0o1777)
    before = os.umask(0o022)
    yield place
    if (run := otel_rl.current()) is not None:
        run.finish(0)  # else it would write again what is removed here
    os.umask(before)
    share_with("none")
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that has ended, with something in each kind of file that verbs write."""
    runs = tmp_path_factory.mktemp("recorded")
    run = otel_rl.init(dir=runs, project="p", id="r", content=True, exporters=[], hardware=False, quiet=True)
    with run.step(0), run.phase("rollout"):
        run.log({"loss": 1.0})
        run.completions(["q"], [["a"]], rewards=[[1.0]], step=0)
    run.finish(60)
    wait_for(lambda: not agent_start.is_looked_after(directories.at(run.dir)), "the agent does not end", 60)
    return run.dir


@pytest.fixture
def copied(recorded: Path, tmp_path: Path) -> Path:
    """Return a copy of the run, which this user has got from somebody."""
    shutil.copytree(recorded, tmp_path / "runs" / "p" / "r")
    return tmp_path / "runs" / "p" / "r"
