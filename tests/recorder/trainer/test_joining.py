"""Children know whose they are: they join the run of their parent, and take the place of no rank."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from otel_rl import Run
from otel_rl.recorder.settings.loading import load
from otel_rl.recorder.settings.settings import Settings
from tests.processes import local_of, run, run_python
from tests.recorder.trainer.reading import begin

_TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}
_SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2",
}
_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
_BY_HAND = {"OTEL_RL_RANK": "1", "OTEL_RL_WORLD_SIZE": "2", "OTEL_RL_RUN_ID": "mine"}
_TWO_MACHINES = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "job"}


def started_by(place: Path, monkeypatch: pytest.MonkeyPatch, launcher: dict[str, str], **keywords: object) -> Run:
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    return begin(place, **keywords)


def child_of(run: Run, own: dict[str, str] | None = None, **keywords: object) -> Settings:
    """Return the settings of a child that joins a run, below a launcher of its own or below none."""
    return load(keywords, {**os.environ, **run.environment(), **(own or {})})


def place_of(settings: Settings) -> tuple[str, int, int]:
    return settings.role, settings.rank, settings.world_size


def labels(run: Run) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in (local_of(run.dir) / "journals").iterdir())


@pytest.mark.parametrize("launcher", [_TORCHRUN, _SLURM, _MPI, _BY_HAND, {}], ids=lambda given: [*given, "none"][0])
def test_inherited_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: dict[str, str]) -> None:
    """The place that a launcher gave the parent does not count; without a role, the child is a worker."""
    parent = started_by(tmp_path, monkeypatch, launcher)

    assert place_of(child_of(parent, role="rollout")) == ("rollout", 0, 1)
    assert place_of(child_of(parent)) == ("worker", 0, 1)
    assert child_of(parent).id == parent.id
    assert place_of(child_of(parent, role="rollout", rank=3, world_size=4)) == ("rollout", 3, 4)


def test_a_launcher_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place that a launcher gives the child itself counts."""
    parent = started_by(tmp_path, monkeypatch, _TORCHRUN)
    own = {**_TORCHRUN, "RANK": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}

    assert place_of(child_of(parent, own, role="rollout")) == ("rollout", 2, 4)


def test_ranks_of_a_driver(tmp_path: Path) -> None:
    """A driver has no rank, so its children are ranks, by their launcher or alone."""
    driver = begin(tmp_path, role="driver")

    assert place_of(child_of(driver)) == ("", 0, 1)
    assert place_of(child_of(driver, _TORCHRUN)) == ("", 1, 2)


def test_a_grandchild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of a worker has no rank's place either."""
    parent = started_by(tmp_path, monkeypatch, _TORCHRUN)
    for name, value in parent.environment().items():
        monkeypatch.setenv(name, value)
    parent.finish(0)
    worker = begin(tmp_path, role="rollout")

    assert place_of(child_of(worker, role="reward")) == ("reward", 0, 1)
    assert place_of(child_of(worker)) == ("worker", 0, 1)


def test_children_of_ranks_on_two_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are numbered by the rank of their parent, so that two machines have no number in common."""
    parent = started_by(tmp_path, monkeypatch, _TWO_MACHINES)
    for name, value in parent.environment().items():
        monkeypatch.setenv(name, value)
    parent.finish(0)
    found = []
    for _ in range(2):
        found.append(begin(tmp_path, role="rollout"))
        found[-1]._end.is_over = True  # another process: the journal stays taken

    assert labels(parent) == ["rank1", "rollout1", "rollout3"]


def test_a_role_without_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that a rank starts without `environment` are in its run, too, each with a number of its own."""
    first = started_by(tmp_path, monkeypatch, _TORCHRUN, role="rollout")
    first._end.is_over = True  # another process: the journal stays taken
    second = begin(tmp_path, role="rollout")

    assert first.id == second.id
    assert labels(second) == ["rollout1", "rollout3"]


def test_keywords_of_another_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A process that was asked to join, and whose keywords are of another run, says so in one line."""
    parent = begin(tmp_path, id="run-7")
    child_of(parent, project="test", id="run-7")
    assert caplog.messages == []
    child_of(parent, project="other", name="mine", role="reward")

    assert caplog.messages == [
        "init(project='other', name='mine') begins another run than run-7, which run.environment() asks this process "
        "to join: leave project and name out to join it (1 so far)"
    ]


_SPAWN = """
import multiprocessing, otel_rl
{before}run = otel_rl.init(agent="off", exporters=[], quiet=True, project="p", {id})
def work(number):
    run.log({{"score": float(number)}}, step=number)
if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        pool.map(work, range(4), chunksize=1)
    run and run.finish(0)
"""


def spawn(place: Path, method: str = "spawn", id: str = "", before: str = "", **environ: str) -> str:  # noqa: A002
    """Run a script with `init` at its top, and a pool that imports it again; return its standard error."""
    (place / "train.py").write_text(_SPAWN.format(method=method, id=id, before=before))
    return run(
        [
            sys.executable,
            "-c",
            "import runpy, sys; sys.exit(__import__('subprocess').run([sys.executable, "
            "'train.py'], stderr=1).returncode)",
        ],
        place,
        **environ,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "id", "environ"),
    [("spawn", "", {}), ("spawn", "id='run-7'", {}), ("forkserver", "", {}), ("spawn", "", _TORCHRUN)],
    ids=["random id", "id", "forkserver", "torchrun"],
)
def test_an_import_of_the_script(tmp_path: Path, method: str, id: str, environ: dict[str, str]) -> None:  # noqa: A002
    """Children of a pool that import the script, and so call `init` again, are workers of the run."""
    printed = spawn(tmp_path, method, id, **environ)
    (found,) = (tmp_path / "runs" / "p").iterdir()
    names = {path.name.partition(".")[0] for path in (local_of(found) / "journals").iterdir()}

    assert printed == ""
    assert names <= {"rank0", "rank1", "worker", "worker1"}
    assert names & {"worker", "worker1"}


@pytest.mark.slow
def test_an_import_of_the_script_by_another_path(tmp_path: Path) -> None:
    """A child that cannot find the run of its parent says where `init` belongs, and records a run of its own."""
    printed = spawn(tmp_path, before="run = None\nif __name__ != '__main__': ")

    assert "put it below `if __name__ == '__main__':`" in printed


_WITH_AN_ID = """
import os, subprocess, sys, otel_rl
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="p", id="run-7")
if "child" not in os.environ:
    subprocess.run([sys.executable, "-c", os.environ["SCRIPT"]], env={**os.environ, "child": "1"}, check=True)
print(run.id, run._session.label)
"""


def test_a_child_with_the_id_of_its_parent(tmp_path: Path) -> None:
    """A program that a rank starts, and that begins the same run, is its worker."""
    assert run_python(_WITH_AN_ID, tmp_path, SCRIPT=_WITH_AN_ID) == "run-7 worker\nrun-7 rank0\n"
