"""`otel-rl rm`: it deletes the run that was named, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import otel_rl
from otel_rl.cli import main
from otel_rl.recorder.archive.removal import RefusedError, content_of, remove
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.files.own_files import ForeignError
from tests.look.recorded import Shape, record
from tests.real_parts import needs_program
from tests.security.other_users import NOBODY, needs_root


def call(*arguments: str, answer: str = "") -> Result:
    """Call `otel-rl` with an answer to its question."""
    return CliRunner().invoke(main, arguments, input=answer)


@pytest.fixture
def run() -> Path:
    """Return a run that has ended, next to another one."""
    for name in ("other", "baseline"):
        place = record(Path("runs/p", name).absolute(), Shape(project="p", name=name, steps=2))
    return place


def test_the_question(run: Path) -> None:
    """It has the size and the content; anything but yes deletes nothing."""
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "model").write_bytes(b"x" * (3 << 20))
    asked = call("rm", "baseline", answer="n\n")

    assert asked.exit_code == 1
    assert f"p · baseline in {run}: 3" in asked.stdout
    assert "checkpoints 3 MiB, archive " in asked.stdout
    assert "Delete 1 run, 3" in asked.stdout
    assert call("rm", "baseline").exit_code == 1  # without anybody to answer
    assert content_of(run).entries[0][0] == "checkpoints"


def test_a_run_is_deleted(run: Path) -> None:
    """The others stay."""
    assert call("rm", "baseline", answer="y\n").exit_code == 0

    assert [path.name for path in run.parent.iterdir()] == ["other"]


def test_several_runs(run: Path) -> None:
    """All are examined before one is deleted."""
    (run / "run.json").unlink()
    assert call("rm", str(run.with_name("other")), str(run), "--yes").exit_code == 1
    assert run.with_name("other").is_dir()

    assert call("rm", str(run.with_name("other")), "--yes").exit_code == 0
    assert not run.with_name("other").exists()


def test_several_runs_of_which_one_is_refused(run: Path) -> None:
    """Those that were deleted before it are named: here, the second one was inside of the first."""
    inner = record(run / "inner", Shape(project="p", name="inner", steps=2))
    done = call("rm", str(run), str(inner), "--yes")

    assert done.exit_code == 1
    assert re.search(rf"^deleted 1 run, [^:]+: {run}$", done.stdout, re.MULTILINE)
    assert str(inner) in done.stderr


def test_links_in_a_run(run: Path, tmp_path: Path) -> None:
    """They go, and what they lead to stays."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("precious")
    (run / "data").symlink_to(tmp_path / "data")
    (run / "archive" / "deep").symlink_to(tmp_path / "data")
    (run / "file").symlink_to(tmp_path / "data" / "file")
    remove(run)

    assert not run.exists()
    assert (tmp_path / "data" / "file").read_text() == "precious"


def test_a_link_to_a_run(run: Path) -> None:
    """It is refused."""
    (latest := run.with_name("latest")).symlink_to(run)

    with pytest.raises(RefusedError, match="is a link"):
        remove(latest)
    assert run.is_dir()


@pytest.mark.parametrize("content", [None, "{}", '{"id": "x"}', "[]", "{"])
def test_what_is_not_a_run(tmp_path: Path, content: str | None) -> None:
    """A folder of a project that has an `archive` too is refused."""
    place = tmp_path / "project"
    (place / "archive").mkdir(parents=True)
    if content is not None:
        (place / "run.json").write_text(content)

    with pytest.raises(RefusedError, match="is not a run directory"):
        remove(place)
    assert place.is_dir()


def test_a_manifest_without_a_record(run: Path) -> None:
    """A `run.json` alone is refused."""
    shutil.rmtree(run / "archive")

    with pytest.raises(RefusedError, match="nothing that was recorded"):
        remove(run)


def test_a_directory_of_runs(run: Path) -> None:
    """It is refused, and so is a name of two runs: nobody guesses which one is meant."""
    record(run.with_name("more"), Shape(name="baseline", steps=2))

    assert "is not a run directory" in call("rm", "runs", "--yes").stderr
    assert "is the name of 2 runs" in call("rm", "baseline", "--yes").stderr
    assert run.is_dir()


def test_a_run_that_goes_on() -> None:
    """It is refused."""
    run = otel_rl.init(agent="off", exporters=[], quiet=True)
    with run.step(0):
        run.log({"loss": 1.0})

    with pytest.raises(RefusedError, match="end the run first"):
        remove(run.dir)
    run.finish(0)


def test_a_run_that_an_agent_holds() -> None:
    """It is refused until the agent has ended."""
    run = otel_rl.init(agent="off", exporters=[], quiet=True)
    run.finish(0)
    with Lock(directories.at(run.dir).agent_lock), pytest.raises(RefusedError, match="in use"):
        remove(run.dir)
    remove(run.dir)

    assert not run.dir.exists()


def test_a_run_that_others_can_write(run: Path) -> None:
    """It is refused: somebody else may have put something there."""
    run.chmod(0o777)

    with pytest.raises(ForeignError, match="other users can write"):
        remove(run)


@needs_root
@pytest.mark.parametrize("where", [".", "run.json", "archive", "checkpoint"])
def test_a_run_with_something_of_another_user(run: Path, where: str) -> None:
    """It is refused, whatever this user may do."""
    (run / "checkpoint").touch()
    os.chown(run / where, NOBODY, NOBODY)

    with pytest.raises(ForeignError, match="belongs to"):
        remove(run)
    assert (run / "archive").is_dir()


def test_undelivered_items(run: Path) -> None:
    """The question names who lacks them."""
    now = {"time_unix_nano": 1, "id": "r", "project": "p", "name": "baseline", "pid": 1, "state": "ended"}
    exporters = [{"name": "wandb", "accepted": 0, "waiting": 40}]
    (run / "archive" / "local" / "now.json").write_text(json.dumps(now | {"processes": [], "exporters": exporters}))

    assert "wandb lacks 40 items of it" in call("rm", "baseline", answer="n\n").stdout


@needs_root
@needs_program("unshare")
def test_a_directory_that_is_mounted_into_a_run(run: Path, tmp_path: Path) -> None:
    """A bind mount has the device of the run: what is in it is somebody's own, and stays."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "model").write_text("weights")
    (run / "checkpoints").mkdir()
    mount = f"mount --bind {tmp_path / 'own'} {run / 'checkpoints'}"
    command = f"{mount} && exec {sys.executable} -m otel_rl.cli rm {run} --yes"
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "another file system is mounted at" in done.stderr
    assert (tmp_path / "own" / "model").read_text() == "weights"
