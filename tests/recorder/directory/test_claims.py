"""An id of a project is that of one run, whatever the working directories of the trainings are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.trainings import find_run
from otel_rl.recorder.settings.loading import load

_STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}


def begin(place: Path, **keywords: object) -> str:
    """Begin a training in a working directory, which makes its run directory; return the id of its run."""
    place.mkdir(exist_ok=True)
    os.chdir(place)
    settings = find_run(load({"project": "p", **keywords})).settings
    directories.create(settings)
    return settings.id


def _chosen(place: str) -> str:
    return find_run(load({"project": "p"}, os.environ | {"OTEL_RL_RUN_ID": "job", "OTEL_RL_DIR": place})).settings.id


@pytest.fixture(autouse=True)
def _back(tmp_path: Path) -> Iterator[None]:
    yield
    os.chdir(tmp_path)


@pytest.mark.parametrize("variables", [{"OTEL_RL_RUN_ID": "job"}, _STEP], ids=["given", "of the launcher"])
def test_trainings_in_three_directories(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are three runs, as jobs of Hydra and parts of a Slurm step, each with an id of its own in trackers."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    first, *others = [begin(tmp_path / name) for name in "abc"]

    assert others == [f"{first}-2", f"{first}-3"]


def test_a_directory_keeps_its_run(tmp_path: Path) -> None:
    """A training that is started again in its directory is another attempt of its run."""
    ids = [begin(tmp_path / name, id="job") for name in "abab"]

    assert ids == ["job", "job-2", "job", "job-2"]


def test_a_directory_keeps_its_run_without_the_claims(tmp_path: Path) -> None:
    """The claims are in a directory that a reboot may clear; the run directories are there all the same."""
    begin(tmp_path / "a", id="job")
    begin(tmp_path / "b", id="job")
    shutil.rmtree(os.environ["XDG_RUNTIME_DIR"])

    assert [begin(tmp_path / name, id="job") for name in "bac"] == ["job-2", "job", "job-3"]


def test_a_directory_that_is_gone_has_no_id(tmp_path: Path) -> None:
    """A run that was moved or removed can be continued elsewhere."""
    begin(tmp_path / "a", id="job")
    shutil.rmtree(tmp_path / "a")

    assert begin(tmp_path / "b", id="job") == "job"


def test_all_ranks_of_a_machine(tmp_path: Path) -> None:
    """They agree on the number, also those that the first training did not have."""
    begin(tmp_path / "a", id="job", rank=0, world_size=1)

    assert [begin(tmp_path / "b", id="job", rank=rank, world_size=3) for rank in range(3)] == ["job-2"] * 3


@pytest.mark.parametrize(
    "keywords",
    [
        {"dir": "runs"},  # code that names both means this run
        {"role": "reward"},  # joins the run
        {"rank": 1, "world_size": 2, "local_world_size": 1},  # the other machine does not see the directories here
        {"project": "another"},
    ],
    ids=str,
)
def test_what_keeps_its_id(keywords: dict[str, object], tmp_path: Path) -> None:
    """It is the run of this id, in whatever directory."""
    begin(tmp_path / "a", id="job")

    assert begin(tmp_path / "b", id="job", **keywords) == "job"


def test_trainings_that_begin_at_once(tmp_path: Path) -> None:
    """Each has an id of its own, before its directory is there."""
    with get_context("fork").Pool(4, maxtasksperchild=1) as pool:
        ids = pool.map(_chosen, [str(tmp_path / name) for name in "abcd"], chunksize=1)

    assert sorted(ids) == ["job", "job-2", "job-3", "job-4"]


def test_no_place_for_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training has the id that was given."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))

    assert begin(tmp_path / "a", id="job") == "job"
