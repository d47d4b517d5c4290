"""A stranger put something else in place of each file of a run: readers neither hang nor run out of memory."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

import otel_rl
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.files.own_files import ForeignError, read_own, read_shown
from tests import samples
from tests.collector import wait_for
from tests.processes import run as run_program
from tests.security.other_users import NOBODY, everything_in, needs_root
from tests.security.reading import KINDS

_HOME = Path(__file__).parents[2]
_OF_PLAIN = ("pipe", "directory", "endless line", "wide JSON")
_PLAIN = ("run.json", "rows.jsonl", "machine.jsonl", "run.end.json")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a run that has ended, and with another one."""
    runs = tmp_path_factory.mktemp("recorded") / "runs"
    run = otel_rl.init(dir=runs, project="p", id="r", exporters=["jsonl"], hardware=False, quiet=True, config={"lr": 1})
    for n in range(3):
        with run.step(n), run.phase("rollout"):
            run.log({"loss": float(n)})
    run.finish(60)
    wait_for(lambda: not agent_start.is_looked_after(directories.at(run.dir)), "the agent does not end", 60)
    good = run.dir.with_name("good")
    shutil.copytree(run.dir, good)
    manifest = msgspec.json.decode((good / "run.json").read_bytes())
    (good / "run.json").write_bytes(msgspec.json.encode(manifest | {"id": "good", "name": "good"}))
    return runs


@pytest.fixture
def run(recorded: Path, crowded: Path) -> Path:
    """Return the run, of another user."""
    shutil.copytree(recorded, crowded / "runs")
    for path in everything_in(crowded / "runs"):
        os.chown(path, NOBODY, NOBODY)
    return crowded / "runs" / "p" / "r"


def harm(run: Path, kind: str, *names: str) -> str:
    """Return what the readers of a run did wrong with each of its files, or with some."""
    return run_program([sys.executable, "-m", "tests.security.reading", str(run), kind, *names], _HOME)


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("kind", _OF_PLAIN)
def test_a_run_without_an_archive(run: Path, kind: str) -> None:
    """Its few files are read as safely; `ls` and names find the run next to it."""
    shutil.rmtree(run / "archive")

    assert harm(run, kind, *_PLAIN) == ""


@needs_root
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", samples.of(range(1), range(len(KINDS))))
def test_each_file_of_a_run(run: Path, first: int) -> None:
    """Every reader returns, or says what is wrong, within its time and memory; the run next to it is found.

    The files get one kind after the other. `ALL_SAMPLES=1` gives each file each kind, which takes 15 minutes.
    """
    assert harm(run, str(first)) == ""


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"empty file", "endless line", "wide JSON", "deep JSON"}))
def test_one_file(tmp_path: Path, kind: str) -> None:
    """Only a regular file that fits into memory is read, and no other is opened."""
    if "device" in kind and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    KINDS[kind](tmp_path / "file")
    for read in (read_own, read_shown):
        with pytest.raises(OSError, match=r"regular file|directory|symbolic links|No such file|larger than"):
            read(tmp_path / "file")


def test_a_link_to_a_file(tmp_path: Path) -> None:
    """It is followed for what is only shown, and refused for what is believed."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")

    assert read_shown(tmp_path / "link") == b"content"
    with pytest.raises(ForeignError, match="not a regular file"):
        read_own(tmp_path / "link")
