"""What the launcher's environment says of this process: its rank, its peers, the job's identity, its machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


_MOST_NODES = 1 << 16
"""The most nodes of one job that Slurm has; a larger number is no count of nodes."""


class Launcher(NamedTuple):
    """The variables that a launcher sets; of several names, the first one that is set counts.

    Attributes:
        name: What the identities of its jobs begin with.
        rank: Number of the process among all.
        world_size: Number of all processes.
        local_world_size: Number of those on this machine.
        node: Number of this machine.
        job: Identity of the job, the same in all its processes.
    """

    name: str
    rank: str
    world_size: str
    local_world_size: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    job: tuple[str, ...] = ()


LAUNCHERS = (
    Launcher(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"),
        ("GROUP_RANK", "NODE_RANK", "CROSS_RANK"),
        ("TORCHELASTIC_RUN_ID",),
    ),
    Launcher(
        "mpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher("mpi", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", ("MV2_COMM_WORLD_LOCAL_SIZE",)),
    Launcher("mpi", "PALS_RANKID", "PMI_SIZE", ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"), ("PALS_NODEID",), ("PALS_APID",)),
    Launcher("mpi", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")),
    Launcher(
        "slurm",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
        ("SLURM_NODEID",),
    ),
)
"""The launchers, innermost first. Sources:

* torchrun: "Environment Variables" of docs.pytorch.org/docs/stable/elastic/run.html. `accelerate launch` runs torchrun.
  Ray Train sets `NODE_RANK` (ray/train/torch/config.py). DeepSpeed sets `LOCAL_SIZE` and `CROSS_RANK`
  (deepspeed/launcher/launch.py). Kubeflow's PyTorchJob sets `RANK` and `WORLD_SIZE` alone, which count pods
  (training-operator, pkg/controller.v1/pytorch/envvar.go).
* Open MPI: docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html; the identity is PMIx's.
* MVAPICH2, MPICH and Intel MPI: mpirun_rsh and Hydra; MPICH 4.0 sets `PMI_RANK`, `PMI_SIZE` and `MPI_LOCALNRANKS`.
* PALS of HPE Cray: the list in Slurm's src/plugins/mpi/cray_shasta, which sets the same variables.
* Slurm: "OUTPUT ENVIRONMENT VARIABLES" of slurm.schedmd.com/srun.html.

An Indexed Job and a JobSet of Kubernetes number pods (`JOB_COMPLETION_INDEX`) and say nothing of ranks.
"""


class Place(msgspec.Struct, frozen=True):
    """A process among its peers; `None` where the launcher does not say.

    Attributes:
        rank: Number of the process among all.
        world_size: Number of all processes.
        local_world_size: Number of those on this machine.
        id: Identity of the job, the same in all its processes.
        node: Number of this machine.
    """

    rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    id: str | None = None
    node: int | None = None


def find_place(environ: Mapping[str, str]) -> Place:
    """Return what the innermost launcher says; an empty place if there is none.

    A launcher that another one started inherits the variables of that one, and passes them on. They describe the
    launcher then, and not its ranks: ranks that Open MPI starts in a Slurm job see `SLURM_PROCID=0` on each machine.
    """
    found = Place()
    for launcher in reversed(LAUNCHERS):
        told = _told(launcher, environ)
        if told is not None:
            found = _completed(told, found)
    if found.rank is None:  # a batch script's own shell, or one process for all of a machine
        return Place(
            node=next((node for launcher in LAUNCHERS if (node := _node(launcher, environ)) is not None), None)
        )
    if found.id is None and environ.get("TORCHELASTIC_RUN_ID") == "none":
        return msgspec.structs.replace(found, id=_parent_job())
    return found


def node_number(environ: Mapping[str, str]) -> str:
    """Return the number of this machine, as far as the launcher tells."""
    place = find_place(environ)
    if place.node is not None:
        return str(place.node)
    return str((place.rank or 0) // (place.local_world_size or place.world_size or 1))


def is_head(host: str, environ: Mapping[str, str]) -> bool:
    """Tell whether this machine owns the address of the head.

    The address decides, not a rank: torchrun's c10d rendezvous may give rank 0 to any machine. The launcher's number
    of this machine decides only where the address cannot: its name is unknown, or every machine has one like it.
    """
    owners = set(_owners(host))
    if True in owners and False not in owners:
        return True
    if owners == {False}:
        return False
    if host.lower() != "localhost" and _is_own_name(host):
        return True
    node = find_place(environ).node
    return bool(owners - {False}) if node is None else node == 0


def is_of_this_machine(host: str) -> bool:
    """Tell whether an address is one of this machine's: it can be listened on."""
    return any(owned is not False for owned in _owners(host))


def _owners(host: str) -> list[bool | None]:
    """Tell of each address of a host whether it is this machine's: `None` if every machine has it, such as loopback."""
    import ipaddress
    import socket

    try:
        found = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    owners: list[bool | None] = []
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            owners.append(False)
            continue
        plain = ipaddress.ip_address(str(address[0]).partition("%")[0])
        everywhere = plain.is_loopback or plain.is_unspecified
        owners.append(None if everywhere else _is_source(family, *address))
    return owners


def _is_source(family: int, address: str | int, *more: str | int | bytes) -> bool:
    """Tell whether packets to an address come from it; `net.ipv4.ip_nonlocal_bind` allows binding to any address."""
    import socket

    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9, *more[1:]))  # of UDP: nothing is sent
            source: tuple[str | int, ...] = probe.getsockname()
    except OSError:
        return True  # there is no route to ask for, but it could be bound to
    return source[0] == address


def _is_own_name(host: str) -> bool:
    import socket

    return host.partition(".")[0].lower() == socket.gethostname().partition(".")[0].lower()


def _told(launcher: Launcher, environ: Mapping[str, str]) -> Place | None:
    """Return what a launcher says; `None` if it says no rank, or one that cannot be."""
    rank, world_size = _number(environ, launcher.rank), _number(environ, launcher.world_size)
    if rank is None or world_size is None or rank >= world_size:
        return None
    node = _node(launcher, environ)
    if launcher.name == "slurm":
        if "SLURM_STEP_ID" not in environ:  # a batch script's own shell is no step
            return None
        here = next((environ[name] for name in launcher.local_world_size if name in environ), "")
        return Place(rank, world_size, _tasks_on_node(here, node), _slurm_job(environ), node)
    local_world_size = next((_number(environ, name) for name in launcher.local_world_size if name in environ), None)
    job = next((environ[name] for name in launcher.job if environ.get(name)), None)
    if launcher.name == "torchrun" and (job == "none" or (job is None and "CROSS_RANK" in environ)):
        identity = _parent_job() if local_world_size == world_size else None
    else:
        identity = f"{launcher.name}-{_digest(job)}" if job else None
    return Place(rank, world_size, local_world_size, identity, node)


def _completed(inner: Place, outer: Place) -> Place:
    """Return a place, with what its launcher does not say from the launcher around it where that speaks of the same."""
    if (inner.rank, inner.world_size) == (outer.rank, outer.world_size):  # Slurm's PMI, or variables set by hand
        local_world_size = inner.local_world_size or outer.local_world_size
    elif outer.local_world_size == 1 and _spans_machines(outer) == _spans_machines(inner):  # one launcher a machine
        local_world_size = inner.local_world_size
    else:
        return inner
    return msgspec.structs.replace(
        inner,
        local_world_size=local_world_size,
        id=inner.id or outer.id,
        node=outer.node if inner.node is None else inner.node,
    )


def _spans_machines(place: Place) -> bool | None:
    if place.local_world_size is None or place.world_size is None:
        return None
    return place.local_world_size < place.world_size


def _tasks_on_node(text: str, node: int | None) -> int | None:
    """Return how many tasks a node has by Slurm's list, such as "2(x3),1", in the order of the nodes."""
    counts = [(int(tasks), int(times or 1)) for tasks, times in re.findall(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", text)]
    if len({tasks for tasks, _ in counts}) == 1:
        return counts[0][0]
    each = [tasks for tasks, times in counts for _ in range(min(times, _MOST_NODES))]
    return each[node] if node is not None and node < len(each) else None


def _slurm_job(environ: Mapping[str, str]) -> str | None:
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    return f"slurm-{job}.{environ['SLURM_STEP_ID']}" if job else None


def _node(launcher: Launcher, environ: Mapping[str, str]) -> int | None:
    return next((_number(environ, name) for name in launcher.node if name in environ), None)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _parent_job() -> str:
    """Return the identity of the launcher of this machine: torchrun without `--rdzv-id`, or DeepSpeed's."""
    import socket

    parent = os.getppid()
    return f"torchrun-{_digest(f'{socket.gethostname()}/{parent}/{_started(parent)}')}"


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]
