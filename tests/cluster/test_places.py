"""Where files are, and what becomes of them: homes on the network, temporary directories of a job, cleaners."""

from __future__ import annotations

import pytest

from tests.cluster.jobs import Case, Submitted
from tests.cluster.slurm import ALICE, CAROL, DAVE, SUPERUSER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_TWO_NODES = (
    "export OTEL_RL_TOKEN=a-token-of-the-test OTEL_RL_INSECURE=true\n"
    'export OTEL_RL_HEAD="$(scontrol show hostnames | head -n 1):$((30000 + SLURM_JOB_ID))"\nsrun python train.py'
)
_HOMES = {"unknown": ALICE, "sshfs": CAROL, "sshfs-with-links": DAVE}
_OFF = {"OTEL_RL_AGENT": "off", "FINISH": ""}
CLEANED = {  # what is removed, by a pattern of its path below the machine's part
    "journal": "*/journals/*.seg",
    "owner": "*/journals/*/owner.json",
    "outbox": "*/outbox/*.seg",
    "identity": "*/outbox/id",
    "cursor": "*/cursors/*",
    "status": "*/agent.json",
}


def clean(job: Submitted) -> None:
    """Remove the files that the job is about, and let the training go on."""
    place, kind = job.case.variables["OTEL_RL_LOCAL_DIR"], job.inside.rpartition("-")[2]
    command = f"find {place} -type f -path '{CLEANED[kind]}' -print -delete"
    gone = job.slurm.run(SUPERUSER, command, "node1")
    job.user(f"touch {job.inside}/go")
    assert gone


CASES = {
    **{name: Case(_TWO_NODES, "--nodes=2 --ntasks=4", user=user) for name, user in _HOMES.items()},
    "scratch": Case("srun python train.py", "--partition=scratch --nodes=1 --nodelist=node1 --ntasks=2", _OFF),
    "complete": Case(_TWO_NODES, "--nodes=2 --ntasks=2"),
    "recorded": Case("srun python train.py", "--nodes=1 --nodelist=node2 --ntasks=2", _OFF),
    **{
        f"cleaned-{name}": Case(
            "srun python train.py",
            "--nodes=1 --nodelist=node1",
            {"WAITS": "1", "OTEL_RL_LOCAL_DIR": f"/var/tmp/{name}"},
            then=clean,
        )
        for name in CLEANED
    },
}


@pytest.mark.parametrize("home", [pytest.param(name, marks=pytest.mark.about(name)) for name in _HOMES])
def test_homes_that_machines_share(jobs: dict[str, Submitted], home: str) -> None:
    """Four ranks on two machines: on a type of file system that is on no list, and on sshfs with links and without."""
    job = jobs[home]

    assert job.wait().state == "COMPLETED", job.left.output
    job.left.run.check(4)
    assert job.left.finished == {rank: ["True"] for rank in range(4)}, job.left.output


@pytest.mark.about("scratch")
def test_a_temporary_directory_that_ends_with_the_job(jobs: dict[str, Submitted]) -> None:
    """The epilog deletes it. Nothing that is not delivered was in it."""
    job = jobs["scratch"]
    assert job.wait().state == "COMPLETED", job.left.output
    job.slurm.until(lambda: not list(job.slurm.machines.outside("node1", "/tmp").glob("job.*")), "no epilog")
    code, said = job.deliver("node1")

    assert code == 0, said
    job.left.run.check(2)


@pytest.mark.about("recorded")
def test_the_command_on_another_machine(jobs: dict[str, Submitted]) -> None:
    """It says on which machine the rest is; there, the same command brings it."""
    job = jobs["recorded"]
    assert job.wait().state == "COMPLETED", job.left.output
    elsewhere, said = job.deliver("ctl")
    there, more = job.deliver("node2")

    assert (elsewhere, there) == (1, 0), (said, more)
    assert "node2" in said
    job.left.run.check(2)


@pytest.mark.about("complete")
def test_the_command_after_a_complete_run(jobs: dict[str, Submitted]) -> None:
    """Where `finish` was `True` on all ranks, it says on each machine that nothing is missing."""
    job = jobs["complete"]
    assert job.wait().state == "COMPLETED", job.left.output
    told = {machine: job.deliver(machine) for machine in ("node2", "node1", "ctl")}

    assert job.left.finished == {rank: ["True"] for rank in range(2)}
    assert {machine: code for machine, (code, _) in told.items()} == dict.fromkeys(told, 0), told
    job.left.run.check(2)


@pytest.mark.parametrize("kind", [pytest.param(name, marks=pytest.mark.about(f"cleaned-{name}")) for name in CLEANED])
def test_a_cleaner(jobs: dict[str, Submitted], kind: str) -> None:
    """A file that is removed while the run goes on: the training is unharmed, and what is lost is said."""
    job = jobs[f"cleaned-{kind}"]
    assert job.wait().state == "COMPLETED", job.left.output
    code, said = job.deliver("node1")

    job.left.run.check_once()
    told = job.left.finished == {0: ["True"]} and code == 0
    is_complete = [row["step"] for row in job.left.run.rows] == list(range(40))
    assert is_complete or not told, (said, job.left.output, job.left.run.log)
