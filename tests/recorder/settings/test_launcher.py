"""Launchers: where each says what this process's rank is, and which machine is the head.

Environments of Slurm 22.05, Open MPI 4.1 and MPICH 4.0 are those that their processes had on two machines.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.settings.head import is_head
from otel_rl.recorder.settings.launcher import Placement, find_place, is_in_job, node_number
from tests.processes import run_python

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
BATCH = {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "4"}
"""The variables of a batch script's own shell, and of Open MPI's ranks on the machine of that shell."""
ORTED = BATCH | {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_TASKS_PER_NODE": "1",
}
"""What Open MPI's daemon on the second machine has from `srun`, and passes on to its ranks."""
HYDRA = BATCH | {
    "SLURM_STEP_ID": "2",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "PMI_SIZE": "4",
    "MPI_LOCALNRANKS": "2",
}
"""What MPICH's ranks on the second machine have: the step is that of its proxies."""


def in_openmpi(rank: int) -> dict[str, str]:
    """Return what Open MPI sets for a rank of four on two machines."""
    sizes = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    return sizes | {"OMPI_COMM_WORLD_RANK": str(rank), "PMIX_NAMESPACE": "1245446145"}


def in_step(rank: int, node: int, tasks: str) -> dict[str, str]:
    """Return what Slurm sets for a rank of four."""
    own = {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_STEP_NUM_TASKS": "4"}
    return {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": tasks} | own


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Placement()),
        ({"PATH": "/bin"}, Placement()),
        (TORCHRUN, Placement(5, 16, 4, "torchrun-")),
        ({"RANK": "1", "WORLD_SIZE": "2"}, Placement(1, 2)),  # Accelerate, DeepSpeed and others, without torchrun's id
        ({"RANK": "1"}, Placement()),
        ({"WORLD_SIZE": "2"}, Placement()),
        (SLURM, Placement(3, 8, 4, "slurm-4242.0")),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "4"}, Placement(3, 8, 4, "slurm-4242.0")),
        ({"SLURM_JOB_ID": "4242", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Placement()),  # a batch script's own shell
        (OPENMPI, Placement(1, 4, 2, "mpi-")),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, Placement(1, 4)),
        ({"PMI_RANK": "2", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}, Placement(2, 8, 4)),
        (SLURM | TORCHRUN, Placement(5, 16, 4, "torchrun-")),  # torchrun started by srun: the inner launcher counts
        ({"RANK": "", "WORLD_SIZE": "x"}, Placement()),
        ({"RANK": "4", "WORLD_SIZE": "4"}, Placement()),  # no such rank
        (
            {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_LOCAL_SIZE": "2"},
            Placement(1, 4, 2),
        ),
        ({"PALS_RANKID": "5", "PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_SIZE": "4"}, Placement(5, 8, 4)),
        ({"PALS_RANKID": "5", "PMI_SIZE": "8", "PALS_LOCAL_SIZE": "4", "PALS_APID": "a1"}, Placement(5, 8, 4, "mpi-")),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_SIZE": "4", "CROSS_RANK": "1"}, Placement(5, 8, 4)),  # DeepSpeed
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_SIZE": "2", "CROSS_RANK": "0"}, Placement(1, 2, 2, "torchrun-")),
        (BATCH, Placement()),
        (BATCH | in_openmpi(1), Placement(1, 4, 2, "mpi-")),
        (ORTED | in_openmpi(3), Placement(3, 4, 2, "mpi-")),
        (HYDRA | {"PMI_RANK": "2"}, Placement(2, 4, 2, "slurm-5.2")),
        (in_step(3, 1, "3,1") | {"PMI_RANK": "3", "PMI_SIZE": "4"}, Placement(3, 4, 1, "slurm-1.0")),  # srun --mpi=pmi2
        (in_step(3, 1, "3,1") | {"RANK": "3", "WORLD_SIZE": "4"}, Placement(3, 4, 1, "slurm-1.0")),  # set by hand
        (
            in_step(1, 0, "4") | {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"},
            Placement(0, 2, 2, "mpi-"),
        ),  # one of 4
        ({"JOB_COMPLETION_INDEX": "1"}, Placement()),  # a pod of an Indexed Job
    ],
)
def test_place(environ: dict[str, str], expected: Placement) -> None:
    """Rank, sizes and the job's identity are those of the innermost launcher."""
    actual = find_place(environ)

    assert (expected.rank, expected.world_size) == (actual.rank, actual.world_size)
    assert expected.local_world_size == actual.local_world_size
    assert (expected.id is None) == (actual.id is None)
    assert (actual.id or "").startswith(expected.id or "")


@pytest.mark.parametrize(
    ("environ", "rank", "job"),
    [
        (TORCHRUN, "RANK", "TORCHELASTIC_RUN_ID"),
        (SLURM, "SLURM_PROCID", "SLURM_JOB_ID"),
        (OPENMPI, "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"),
    ],
)
def test_one_job_one_id(environ: dict[str, str], rank: str, job: str) -> None:
    """All ranks of a job have one identity, which can name a directory; another job has another."""
    here, peer, other = find_place(environ), find_place(environ | {rank: "0"}), find_place(environ | {job: "77"})

    assert here.id == peer.id
    assert here.id != other.id
    assert re.fullmatch(r"[a-z0-9.-]+", here.id or "")


def test_torchrun_without_an_id(tmp_path: Path) -> None:
    """Processes that torchrun started without an id have the same one, since they have the same parent."""
    environ = TORCHRUN | {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "16"}
    script = f"from otel_rl.recorder.settings.launcher import find_place; print(find_place({environ!r}).id)"
    first, second = (run_python(script, tmp_path) for _ in range(2))

    assert first.startswith("torchrun-")
    assert first == second
    assert f"{find_place(environ).id}\n" != first


@pytest.mark.parametrize(
    ("listed", "inside", "outside"),
    [
        ("node1", ["node1", "node1.cluster"], ["node11", "node2", "ode1"]),
        ("node[1-3,7]", ["node1", "node2", "node7"], ["node4", "node", "node[1-3,7]"]),
        ("node[01-10],login", ["node01", "node10", "login"], ["node1", "node11"]),
        ("rack[1-2]n[1,3]", ["rack1n1", "rack2n3"], ["rack3n1", "rack1n2"]),
        ("", [], ["node1", ""]),
        ("node[", [], ["node1"]),
    ],
)
def test_the_machines_of_a_slurm_job(listed: str, inside: list[str], outside: list[str]) -> None:
    """Slurm's list is compressed: ranges, fixed widths and several brackets."""
    found = {host: is_in_job(host, {"SLURM_JOB_NODELIST": listed}) for host in (*inside, *outside)}

    assert found == dict.fromkeys(inside, True) | dict.fromkeys(outside, False)


def at(address: str, **more: str) -> str | None:
    """Return the identity of a rank whose launcher says no more than where the ranks meet."""
    return find_place({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": address, "MASTER_PORT": "29500"} | more).id


def test_where_ranks_meet() -> None:
    """PyTorchJob, Ray Train and torchrun without `--rdzv-id`: ranks that meet at one address are one job."""
    assert at("job-master-0") == at("job-master-0", RANK="3") == at("job-master-0", TORCHELASTIC_RUN_ID="none")
    assert len({at("job-master-0"), at("other-master-0"), at("job-master-0", MASTER_PORT="1"), at("127.0.0.1")}) == 4


def test_loopback_is_an_address_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that meet at `localhost` are on one machine."""
    here = at("localhost")
    monkeypatch.setattr("socket.gethostname", lambda: "other")

    assert here != at("localhost")


def test_open_mpi_that_repeats_its_numbers() -> None:
    """In containers of one host name, `mpirun` has the same pid each time: its key distinguishes the jobs."""
    keys = [{"OMPI_MCA_orte_precondition_transports": key} for key in ("ef98-0d5a", "ef98-0d5a", "77aa-0d5a")]
    first, peer, other = (find_place(OPENMPI | key).id for key in keys)

    assert first == peer
    assert first != other


def test_mvapich2() -> None:
    """The host, pid and port of its `mpirun_rsh` name the job."""
    said = {"MPISPAWN_MPIRUN_HOST": "node1", "MPISPAWN_MPIRUN_ID": "77", "MPISPAWN_MPIRUN_PORT": "40123"}
    ranks = [{"MV2_COMM_WORLD_RANK": str(rank), "MV2_COMM_WORLD_SIZE": "4"} | said for rank in range(4)]

    assert len({find_place(rank).id for rank in ranks}) == 1
    assert (find_place(ranks[0]).id or "").startswith("mpi-")


def test_ranks_that_have_nothing_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The training goes on: each machine records its ranks, and one warning has the fix; a strict run raises."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(otel_rl.SettingsError, match="no identity in common: set OTEL_RL_RUN_ID"):
        otel_rl.init(dir=tmp_path, agent="off", exporters=[], strict=True)
    run = otel_rl.init(dir=tmp_path, agent="off", exporters=[])

    assert run.id.startswith("local-")
    assert "set OTEL_RL_RUN_ID to the same text in all of them" in caplog.text


@pytest.mark.parametrize(
    ("tasks", "node", "expected"),
    [
        ("3,1", 0, 3),
        ("3,1", 1, 1),
        ("2(x3),1", 2, 2),
        ("2(x3),1", 3, 1),
        ("2(x3)", 1, 2),
        ("2(x3),1", 4, None),
        ("", 0, None),
        ("1(x999999999),2", 1, 1),
    ],
)
def test_tasks_of_the_own_node(tasks: str, node: int, expected: int | None) -> None:
    """Slurm lists the tasks of all nodes in their order; those of the own node count."""
    assert find_place(in_step(0, node, tasks)).local_world_size == expected


def test_open_mpi_in_slurm_is_one_job() -> None:
    """Ranks that Open MPI starts on two machines of a Slurm job have four ranks and one identity."""
    places = [find_place((BATCH if rank < 2 else ORTED) | in_openmpi(rank)) for rank in range(4)]

    assert [place.rank for place in places] == [0, 1, 2, 3]
    assert len({place.id for place in places}) == 1


@pytest.mark.parametrize(
    ("environ", "node"),
    [
        (TORCHRUN | {"GROUP_RANK": "1", "SLURM_NODEID": "0"}, "1"),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "1"}, "1"),  # Ray Train
        (BATCH | in_openmpi(0), "0"),
        (ORTED | in_openmpi(3), "1"),
        (HYDRA | {"PMI_RANK": "2"}, "1"),
        (in_step(1, 1, "3,1"), "1"),
        (BATCH, "0"),
        ({"GROUP_RANK": "3"}, "3"),
        ({}, "0"),
    ],
)
def test_the_number_of_the_machine(environ: dict[str, str], node: str) -> None:
    """The innermost launcher numbers the machines; what daemons of MPI inherit from Slurm does not count."""
    assert node_number(environ) == node


def test_torchrun_without_an_id_on_two_machines() -> None:
    """If Slurm starts a torchrun on each machine, all ranks have the identity of Slurm's step."""
    launched = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_TASKS_PER_NODE": "1(x4)"}
    machines = [
        TORCHRUN | launched | {"TORCHELASTIC_RUN_ID": "none", "RANK": str(4 * node), "SLURM_PROCID": str(node)}
        for node in range(4)
    ]

    assert {find_place(machine).id for machine in machines} == {"slurm-7.0"}


def own_address() -> str:
    """Return an address of this machine that other machines do not have; skip the test if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize("node", [{}, {"GROUP_RANK": "0"}, {"GROUP_RANK": "1"}])
def test_the_head_owns_the_address(node: dict[str, str]) -> None:
    """The machine with the address is the head, whatever number the launcher gives it; no other machine is."""
    assert is_head(own_address(), TORCHRUN | node)
    assert not is_head("192.0.2.1", TORCHRUN | node)  # RFC 5737: nobody's


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "0.0.0.0", "head.invalid"])
def test_the_number_decides_where_the_address_cannot(host: str) -> None:
    """Every machine has loopback, and none has a name that is unknown: the first machine is the head then."""
    assert is_head(host, TORCHRUN | {"GROUP_RANK": "0"})
    assert not is_head(host, TORCHRUN | {"GROUP_RANK": "1"})


def test_the_own_name_is_owned() -> None:
    """A machine is the head by its own name, also if that is loopback or cannot be resolved."""
    own = socket.gethostname()

    assert is_head(own, TORCHRUN | {"GROUP_RANK": "1"})
    assert is_head(f"{own}.invalid", TORCHRUN | {"GROUP_RANK": "1"})


def test_own_exporters_of_another_machine_than_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the head is on another machine than rank 0, exporters that only rank 0 can use get no rows, and it says so."""
    monkeypatch.setenv("OTEL_RL_TOKEN", "a-secret-of-the-tests")
    with pytest.raises(otel_rl.SettingsError, match="get no rows: give head= an address of the machine of rank 0"):
        otel_rl.init(
            dir=str(tmp_path),
            id="r",
            rank=0,
            world_size=2,
            head="192.0.2.1:4320",
            insecure=True,
            exporters=[lambda run: run],  # type: ignore[arg-type,return-value]
            strict=True,
        )
