"""Rows of jobs of all kinds: each rank is in each row once, whoever started it and wherever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.jobs import Case

if TYPE_CHECKING:
    from tests.cluster.jobs import Submitted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_HEAD = 'export OTEL_RL_HEAD="$(scontrol show hostnames | head -n 1):$((10000 + SLURM_JOB_ID))"'
_SRUN = f"{_HEAD}\nsrun python train.py"
CASES = {
    "srun-1x4": Case(_SRUN, "--nodes=1 --ntasks=4"),
    "srun-2x2": Case(_SRUN, "--nodes=2 --ntasks=4 --ntasks-per-node=2"),
    "srun-3-1": Case(f"{_HEAD}\nsrun --distribution=plane=3 python train.py", "--nodes=2 --ntasks=4"),
}


def check(job: Submitted, world: int) -> None:
    """Check that a job ended well, with all rows of one attempt, and that `finish` said so to all ranks."""
    assert job.wait().state == "COMPLETED", job.left.output
    job.left.run.check(world)
    assert job.left.run.attempts == [0]
    assert job.left.run.outcome == "finished"
    assert job.left.finished == {rank: ["True"] for rank in range(world)}, job.left.output


@pytest.mark.about("srun-1x4")
def test_srun_on_one_node(jobs: dict[str, Submitted]) -> None:
    """Four ranks of one machine."""
    check(jobs["srun-1x4"], 4)


@pytest.mark.about("srun-2x2")
def test_srun_on_two_nodes(jobs: dict[str, Submitted]) -> None:
    """Two ranks on each of two machines."""
    check(jobs["srun-2x2"], 4)


@pytest.mark.about("srun-3-1")
def test_srun_that_places_unevenly(jobs: dict[str, Submitted]) -> None:
    """Three ranks on one machine, one on the other."""
    check(jobs["srun-3-1"], 4)
