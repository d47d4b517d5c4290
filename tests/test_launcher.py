"""Launchers: where each says what this process's rank is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from otel_rl.launcher import Place, find_place
from tests.processes import run_python

if TYPE_CHECKING:
    from pathlib import Path

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "job7"}
SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-node1-99@1",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Place()),
        ({"PATH": "/bin"}, Place()),
        (TORCHRUN, Place(5, 16, 4, "torchrun-")),
        ({"RANK": "1", "WORLD_SIZE": "2"}, Place(1, 2)),  # Accelerate, DeepSpeed and others, without torchrun's id
        ({"RANK": "1"}, Place()),
        ({"WORLD_SIZE": "2"}, Place()),
        (SLURM, Place(3, 8, 4, "slurm-4242.0")),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "4"}, Place(3, 8, 4, "slurm-4242.0")),
        ({"SLURM_JOB_ID": "4242", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Place()),  # a batch script's own shell
        (OPENMPI, Place(1, 4, 2, "mpi-")),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, Place(1, 4)),
        ({"PMI_RANK": "2", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}, Place(2, 8, 4)),
        (SLURM | TORCHRUN, Place(5, 16, 4, "torchrun-")),  # torchrun started by srun: the inner launcher counts
        ({"RANK": "", "WORLD_SIZE": "x"}, Place()),
    ],
)
def test_place(environ: dict[str, str], expected: Place) -> None:
    """Rank, sizes and the job's identity are those of the innermost launcher."""
    actual = find_place(environ)

    assert (expected.rank, expected.world_size) == (actual.rank, actual.world_size)
    assert expected.local_world_size == actual.local_world_size
    assert (expected.id is None) == (actual.id is None)
    assert (actual.id or "").startswith(expected.id or "")


@pytest.mark.parametrize("environ", [TORCHRUN, SLURM, OPENMPI])
def test_ids_name_directories(environ: dict[str, str]) -> None:
    """An identity made of the launcher's words can name a directory."""
    assert re.fullmatch(r"[a-z0-9.-]+", find_place(environ).id or "")


@pytest.mark.parametrize(
    ("environ", "rank", "job"),
    [
        (TORCHRUN, "RANK", "TORCHELASTIC_RUN_ID"),
        (SLURM, "SLURM_PROCID", "SLURM_JOB_ID"),
        (OPENMPI, "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"),
    ],
)
def test_one_job_one_id(environ: dict[str, str], rank: str, job: str) -> None:
    """All ranks of a job have the same identity, and another job has another."""
    here, peer, other = find_place(environ), find_place(environ | {rank: "0"}), find_place(environ | {job: "77"})

    assert here.id == peer.id
    assert here.id != other.id


def test_torchrun_without_an_id(tmp_path: Path) -> None:
    """Processes that torchrun started without an id have the same one, since they have the same parent."""
    environ = TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}
    script = f"from otel_rl.launcher import find_place; print(find_place({environ!r}).id)"
    first, second = (run_python(script, tmp_path) for _ in range(2))

    assert first.startswith("torchrun-")
    assert first == second
    assert f"{find_place(environ).id}\n" != first
