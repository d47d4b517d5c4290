"""Rows of jobs of all kinds: each rank is in each row once, whoever started it and wherever."""

from __future__ import annotations

import pytest

from tests.cluster.jobs import Case, Cluster, Submitted
from tests.cluster.left_behind import LeftBehind
from tests.cluster.slurm import BOB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PROTECTED = "export OTEL_RL_TOKEN=a-token-of-the-test OTEL_RL_INSECURE=true"
_HEAD = f'{_PROTECTED} OTEL_RL_HEAD="$(scontrol show hostnames | head -n 1):$((30000 + SLURM_JOB_ID))"'
_SRUN = f"{_HEAD}\nsrun python train.py"
_FIXED = f'{_PROTECTED} OTEL_RL_HEAD="node1:4320"\nsrun python train.py'
_C10D = """srun torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" \\
  --rdzv-endpoint="$(scontrol show hostnames | head -n 1):$((31000 + SLURM_JOB_ID))" train.py"""
CASES = {
    "srun-1x4": Case(_SRUN, "--nodes=1 --ntasks=4"),
    "srun-2x2": Case(_SRUN, "--nodes=2 --ntasks=4 --ntasks-per-node=2"),
    "srun-3-1": Case(f"{_HEAD}\nsrun --distribution=plane=3 python train.py", "--nodes=2 --ntasks=4"),
    "train": Case("train.sbatch", "--nodes=2 --gpus-per-node=2"),
    "mpirun": Case("mpirun.sbatch", "--nodes=2 --ntasks-per-node=2 --gpus-per-node=2"),
    "array": Case("array.sbatch", "--array=0-1"),
    "one-node-a": Case("train.sbatch", "--nodes=1 --nodelist=node1 --gpus-per-node=2"),
    "one-node-b": Case("train.sbatch", "--nodes=1 --nodelist=node1 --gpus-per-node=2", user=BOB),
    "one-port-a": Case(_FIXED, "--nodes=2 --ntasks=2", {"STEPS": "100"}),
    "one-port-b": Case(_FIXED, "--nodes=2 --ntasks=2", {"STEPS": "100"}),
}


def shell(cluster: Cluster, name: str, *lines: str) -> LeftBehind:
    """Type lines into the shell that `interactive.sh` opens; return what is left when it has ended."""
    user = CASES["array"].user
    inside = cluster.directory(name, user)
    (cluster.slurm.home(user) / name / "typed").write_text("".join(f"{line}\n" for line in (*lines, "exit")))
    script = cluster.template("interactive.sh", name, user)
    command = f"cd {inside} && script --quiet --return --command {script} job.log <typed"
    code, *said = cluster.slurm.attempt(user, command)
    assert code == 0, said
    return cluster.left(inside, user)


def check(job: Submitted, world: int, steps: int = 40) -> None:
    """Check that a job ended well, with all rows of one attempt, and that `finish` said so to all ranks."""
    assert job.wait().state == "COMPLETED", job.left.output
    job.left.run.check(world, steps)
    assert job.left.run.attempts == [0]
    assert job.left.run.outcome == "finished"
    assert job.left.finished == {rank: ["True"] for rank in range(world)}, job.left.output


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.about(name), id=f"{name}: {what}")
        for name, what in {
            "srun-1x4": "four ranks of one machine",
            "srun-2x2": "two ranks on each of two machines",
            "srun-3-1": "three ranks on one machine, one on the other",
            "train": "`train.sbatch` as it is, torchrun on two nodes",
            "mpirun": "`mpirun.sbatch` as it is, Open MPI in an allocation of two nodes",
        }.items()
    ],
)
def test_four_ranks(jobs: dict[str, Submitted], name: str) -> None:
    """However they are started and placed: all rows of one attempt, with the values of all ranks."""
    check(jobs[name], 4)


@pytest.mark.about("one-node-a", "one-node-b")
def test_two_users_on_one_node(jobs: dict[str, Submitted]) -> None:
    """Two jobs of `train.sbatch` at once, of two users."""
    check(jobs["one-node-a"], 2)
    check(jobs["one-node-b"], 2)


@pytest.mark.about("array")
def test_array(jobs: dict[str, Submitted]) -> None:
    """`array.sbatch` as it is: each task is a run with a name of its own."""
    job = jobs["array"]
    for task in range(2):
        assert job.slurm.wait(f"{job.id}_{task}").state == "COMPLETED", job.left.output
    runs = {run.path.name: run for run in job.left.runs}

    assert set(runs) == {f"sweep-{task}-slurm-{job.id}_{task}" for task in range(2)}
    for run in runs.values():
        run.check(1)
        assert (run.attempts, run.outcome) == ([0], "finished")


@pytest.mark.about("one-port-a", "one-port-b")
def test_two_jobs_with_one_port(jobs: dict[str, Submitted]) -> None:
    """Both get the same address for the head: both trainings end well, and no row has ranks of the other."""
    a, b = jobs["one-port-a"], jobs["one-port-b"]

    assert (a.wait().state, b.wait().state) == ("COMPLETED", "COMPLETED"), (a.left.output, b.left.output)
    for job in (a, b):
        if all(said == ["True"] for said in job.left.finished.values()):
            job.left.run.check(2, 100)
        else:
            assert "4320" in job.left.output  # which address it was
            job.left.run.check_once()
            assert all(row["values"]["ranks"] in (1, 2, 3) for row in job.left.run.rows)


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_names_in_another_order(renamed: Cluster, rendezvous: str) -> None:
    """Node9 and node10, which c10d sorts as strings, so that rank 0 is not on the machine of the head's address."""
    script = "train.sbatch" if rendezvous == "static" else f"{_HEAD}\n{_C10D}"
    check(renamed.submit(rendezvous, Case(script, "--nodes=2 --gpus-per-node=2")), 4)


def test_mpirun_without_slurm(cluster: Cluster) -> None:
    """Four ranks of Open MPI on a machine that is not a node."""
    user = CASES["mpirun"].user
    inside = cluster.directory("mpirun-alone", user)
    command = f"cd {inside} && mpirun --oversubscribe -np 4 python train.py >job.log 2>&1"
    code, *said = cluster.slurm.attempt(user, command)
    left = cluster.left(inside, user)

    assert code == 0, (said, left.output)
    left.run.check(4)
    assert left.finished == {rank: ["True"] for rank in range(4)}


def test_two_trainings_in_a_shell_one_after_the_other(cluster: Cluster) -> None:
    """`interactive.sh` as it is: each training is a run of its own."""
    left = shell(cluster, "shell-after", "python train.py", "python train.py")

    assert len(left.runs) == 2, left.output
    for run in left.runs:
        run.check(1)
        assert (run.attempts, run.outcome) == ([0], "finished")


def test_two_trainings_in_a_shell_at_once(cluster: Cluster) -> None:
    """Both end well, each as a run of its own."""
    left = shell(cluster, "shell-at-once", "python train.py & python train.py; wait")

    assert left.finished == {0: ["True", "True"]}, left.output
    assert len(left.runs) == 2, left.output
    for run in left.runs:
        run.check(1)
        assert (run.attempts, run.outcome) == ([0], "finished")
