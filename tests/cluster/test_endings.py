"""All ways to end a job: nothing that was logged is lost, and nothing comes twice."""

from __future__ import annotations

import re

import pytest

from tests.cluster.jobs import Case, Submitted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PROTECTED = "export OTEL_RL_TOKEN=a-token-of-the-test OTEL_RL_INSECURE=true"
_HEAD = f'{_PROTECTED} OTEL_RL_HEAD="$(scontrol show hostnames | head -n 1):$((30000 + SLURM_JOB_ID))"'
_WAITS = {"WAITS": "1"}
_SAVE = "--nodes=2 --time=4 --signal=B:USR1@100"  # Slurm sends signals up to a minute early
_ONE = "--nodes=1 --nodelist=node1 --ntasks=2"
_AGAIN = "--nodes=1 --nodelist=node1 --open-mode=append"


def cancel(job: Submitted) -> None:
    """Cancel the job."""
    job.user(f"scancel {job.id}")


def ask(job: Submitted) -> None:
    """Send the batch script the signal that Slurm sends before the time limit."""
    job.user(f"scancel --signal=USR1 --batch {job.id}")


def requeue(job: Submitted) -> None:
    """Put the job back into the queue."""
    job.user(f"scontrol requeue {job.id}")


def move(job: Submitted) -> None:
    """Put the job back into the queue, for the other node."""
    requeue(job)
    job.user(f"scontrol update JobId={job.id} ReqNodeList=node2")


CASES = {
    "time-limit": Case("srun python train.py", f"{_ONE} --time=1", _WAITS),
    "saves": Case("train.sbatch", f"{_SAVE} --gpus-per-node=1", _WAITS),
    "hangs": Case("train.sbatch", "--nodes=1 --nodelist=node2 --gpus-per-node=1", {"HANGS": "1"}, then=ask),
    "cancelled": Case("srun python train.py", _ONE, _WAITS, then=cancel),
    "cancelled-on-two": Case(f"{_HEAD}\nsrun python train.py", "--nodes=2 --ntasks=2", _WAITS, then=cancel),
    "cancelled-script": Case(
        "train.sbatch", "--nodes=2 --gpus-per-node=1", _WAITS | {"SAVES_AT_TERM": "1"}, then=cancel
    ),
    "requeued": Case("srun python train.py", _AGAIN, _WAITS, then=requeue),
    "moved": Case("srun python train.py", _AGAIN, _WAITS, then=move),
    "mpirun-saves": Case("mpirun.sbatch", "--nodes=2 --ntasks-per-node=1 --gpus-per-node=1", _WAITS, then=ask),
    "array-saves": Case("array.sbatch", "--array=3", _WAITS, then=ask),
    "fails": Case("srun python train.py", _ONE, {"EXIT": "7", "FINISH": ""}),
}


@pytest.mark.about("fails")
def test_exit_status_of_a_training(jobs: dict[str, Submitted]) -> None:
    """It is the job's, and the run has failed."""
    job = jobs["fails"]

    assert (job.wait().state, job.wait().exit_code) == ("FAILED", "7:0")
    code, said = job.deliver("node1")
    assert code == 0, said
    job.left.run.check(2)
    assert job.left.run.outcome == "failed"


@pytest.mark.about("cancelled")
def test_scancel(jobs: dict[str, Submitted]) -> None:
    """The documented command on the node brings the rest."""
    job = jobs["cancelled"]
    assert job.wait().state == "CANCELLED"
    code, said = job.deliver("node1")

    assert code == 0, said
    job.left.check_logged(2)
    assert job.left.run.attempts == [0]
    assert job.left.run.outcome in ("failed", "cancelled", "lost")


@pytest.mark.about("cancelled-on-two")
def test_scancel_on_two_nodes(jobs: dict[str, Submitted]) -> None:
    """The documented command on each node brings the rest."""
    job = jobs["cancelled-on-two"]
    assert job.wait().state == "CANCELLED"
    said = [job.deliver(node) for node in ("node2", "node1")]

    assert said[-1][0] == 0, said
    job.left.check_logged(2)


@pytest.mark.about("cancelled-script")
def test_scancel_of_the_batch_script(jobs: dict[str, Submitted]) -> None:
    """The ranks get SIGTERM and can save, and the documented command on each node brings the rest."""
    job = jobs["cancelled-script"]
    assert job.wait().state == "CANCELLED"
    said = [job.deliver(node) for node in ("node2", "node1")]

    assert said[-1][0] == 0, said
    job.left.check_logged(2)
    assert {"0", "1"} == set(re.findall(r"saved \d+ rank (\d)", job.left.output)), job.left.output


@pytest.mark.about("hangs")
def test_the_batch_script_of_a_training_that_hangs(jobs: dict[str, Submitted]) -> None:
    """The script does not wait for its checkpoint forever; the job goes back into the queue."""
    job = jobs["hangs"]
    done = job.wait(400)

    assert (done.state, done.restarts) == ("COMPLETED", 1), job.left.output
    code, said = job.deliver("node2")
    assert code == 0, said
    job.left.run.check_once()
    job.left.run.check_history(1, 40)


@pytest.mark.about("time-limit")
def test_time_limit(jobs: dict[str, Submitted]) -> None:
    """The documented command on the node brings the rest."""
    job = jobs["time-limit"]
    assert job.wait().state == "TIMEOUT"
    code, said = job.deliver("node1")

    assert code == 0, said
    job.left.check_logged(2)


@pytest.mark.about("requeued")
def test_requeue_on_the_same_node(jobs: dict[str, Submitted]) -> None:
    """It is the next attempt of the same run; what the first one logged comes without a command."""
    job = jobs["requeued"]
    done = job.wait()

    assert (done.state, done.restarts) == ("COMPLETED", 1), job.left.output
    assert job.left.run.attempts == [0, 1]
    for start in range(2):
        job.left.check_logged(1, start)
    job.left.run.check_history(1, 40)
    assert job.left.run.outcome == "finished"


@pytest.mark.about("moved")
def test_requeue_on_another_node(jobs: dict[str, Submitted]) -> None:
    """It is the next attempt of the same run; the documented command brings what waits on the first node."""
    job = jobs["moved"]
    done = job.wait()

    assert (done.state, done.nodes) == ("COMPLETED", "node2"), job.left.output
    job.left.run.check_history(1, 40)
    code, said = job.deliver("node1")
    assert code == 0, said
    assert job.left.run.attempts == [0, 1]
    for start in range(2):
        job.left.check_logged(1, start)


@pytest.mark.about("saves")
def test_the_batch_script_at_its_time_limit(jobs: dict[str, Submitted]) -> None:
    """`train.sbatch` as it is saves, requeues itself, and goes on from the checkpoint."""
    job = jobs["saves"]
    done = job.wait(400)

    assert done.state == "COMPLETED", job.left.output
    assert done.restarts >= 1
    assert "saved" in job.left.output
    assert job.left.run.attempts == list(range(done.restarts + 1))
    job.left.run.check_once()
    job.left.run.check_history(2, 40)


@pytest.mark.parametrize(
    ("name", "world"),
    [
        pytest.param(name, world, marks=pytest.mark.about(name))
        for name, world in (("mpirun-saves", 2), ("array-saves", 1))
    ],
)
def test_other_batch_scripts_at_their_time_limit(jobs: dict[str, Submitted], name: str, world: int) -> None:
    """The same of `mpirun.sbatch` and `array.sbatch`, given the signal that Slurm gives them."""
    job = jobs[name]
    done = job.wait()

    assert (done.state, done.restarts) == ("COMPLETED", 1), job.left.output
    assert job.left.run.attempts == [0, 1]
    job.left.run.check_once()
    job.left.run.check_history(world, 40)
