"""The variables of launchers: rank and world size of this process, identity of the job, number of the machine."""

from __future__ import annotations

import hashlib
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.recorder.files.processes import ancestors, supervisor

if TYPE_CHECKING:
    from collections.abc import Mapping

_INTERACTIVE_STEP = "4294967290"
"""The step of the shell that `salloc` opens: `SLURM_INTERACTIVE_STEP` of slurm.h."""
_MOST_NODES = 1 << 16
"""Maximum number of nodes of a Slurm job; a larger number is not a node count."""


class Launcher(NamedTuple):
    """The variables of a launcher that hold a `Placement`; of several names, the first one that is set is used."""

    name: str  # prefix of the identities of its jobs
    rank: str
    world_size: str
    local_world_size: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    jobs: tuple[tuple[str, ...], ...] = ()  # variables that identify the job together; the first complete group is used


LAUNCHERS = (
    Launcher(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"),
        ("GROUP_RANK", "NODE_RANK", "CROSS_RANK"),
        (("TORCHELASTIC_RUN_ID",),),
    ),
    Launcher(
        "mpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        jobs=(
            ("PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"),
            ("PMIX_NAMESPACE",),
            ("OMPI_MCA_ess_base_jobid",),
        ),
    ),
    Launcher(
        "mpi",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
        jobs=(("MPISPAWN_MPIRUN_HOST", "MPISPAWN_MPIRUN_ID", "MPISPAWN_MPIRUN_PORT"),),
    ),
    Launcher(
        "mpi", "PALS_RANKID", "PMI_SIZE", ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"), ("PALS_NODEID",), (("PALS_APID",),)
    ),
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
  Version 4 numbers jobs by its host and pid, which containers repeat, and draws the key of the transports.
* MVAPICH2, MPICH and Intel MPI: mpirun_rsh (its mpispawn.c) and Hydra; MPICH 4.0 sets `PMI_RANK`, `PMI_SIZE` and
  `MPI_LOCALNRANKS`. Hydra's proxies, the parents of the ranks, have the address of their `mpiexec` as an argument.
* PALS of HPE Cray: the list in Slurm's src/plugins/mpi/cray_shasta, which sets the same variables.
* Slurm: "OUTPUT ENVIRONMENT VARIABLES" of slurm.schedmd.com/srun.html and sbatch.html.

Ranks that have `RANK` and no identity meet at `MASTER_ADDR` and `MASTER_PORT`, which `torch.distributed` needs: Ray
Train takes a free port, PyTorchJob has the name of the job in the address (pkg/controller.v1/pytorch/master.go).

An Indexed Job and a JobSet of Kubernetes number pods (`JOB_COMPLETION_INDEX`) and say nothing of ranks.
"""


class Placement(msgspec.Struct, frozen=True):
    """The rank of a process and the size of its job; `None` if the launcher does not set it."""

    rank: int | None = None  # number of the process among all
    world_size: int | None = None  # number of all processes
    local_world_size: int | None = None  # number of the processes on this machine
    id: str | None = None  # identity of the job, the same in all its processes
    node: int | None = None  # number of this machine


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the trainer, as opposed to other starts in the same job."""

    restarts: int = 0  # number of restarts of the whole job; the same in all its processes
    supervisor: str = ""  # process on this machine that restarts failed ranks; empty if there is none
    supervised: int = 0  # number of restarts by the supervisor; it may differ between machines
    port: str = ""  # port at which the ranks of a training meet; empty if unknown
    resumes: bool = True  # whether a failed training that is started again continues; not in an interactive shell


def find_launch(environ: Mapping[str, str]) -> Launch:
    """Return this start, as the launchers' variables describe it."""
    by_torchrun = bool(environ.get("TORCHELASTIC_RUN_ID"))
    is_shell = "SLURM_PTY_PORT" in environ or environ.get("SLURM_STEP_ID") == _INTERACTIVE_STEP
    return Launch(
        restarts=_number(environ, "SLURM_RESTART_COUNT") or 0,
        supervisor=supervisor(environ) if by_torchrun else "",
        supervised=(_number(environ, "TORCHELASTIC_RESTART_COUNT") or 0) if by_torchrun else 0,
        port=environ.get("MASTER_PORT", ""),
        resumes=not is_shell and (_has_job(environ) or "KUBERNETES_SERVICE_HOST" in environ),
    )


def find_place(environ: Mapping[str, str]) -> Placement:
    """Return the place that the innermost launcher describes; an empty one if there is no launcher.

    A launcher that another one started inherits the variables of that one, and passes them on. They describe the
    launcher then, and not its ranks: ranks that Open MPI starts in a Slurm job see `SLURM_PROCID=0` on each machine.
    """
    place = Placement()
    for launcher in reversed(LAUNCHERS):
        placed = _placed(launcher, environ)
        if placed is not None:
            place = _completed(placed, place)
    if place.rank is None:  # a batch script's own shell, or one process for all of a machine
        nodes = (_node(launcher, environ) for launcher in LAUNCHERS)
        return Placement(node=next((node for node in nodes if node is not None), None))
    if place.id is None:
        return msgspec.structs.replace(place, id=_unnamed_job(place, environ))
    return place


def node_number(environ: Mapping[str, str]) -> str:
    """Return the number of this machine, estimated from the rank if the launcher does not set it."""
    place = find_place(environ)
    if place.node is not None:
        return str(place.node)
    return str((place.rank or 0) // (place.local_world_size or place.world_size or 1))


def is_in_job(host: str, environ: Mapping[str, str]) -> bool:
    """Return whether a machine is in Slurm's list of the job's nodes, such as "node[01-03,07],login"."""
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""
    name = host.partition(".")[0]
    return any(_is_listed(name, element) for element in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", listed))


def _is_listed(name: str, element: str) -> bool:
    pattern, ranges = "", []
    for text, numbers in re.findall(r"([^\[]*)(?:\[([^\]]*)\])?", element):
        pattern += re.escape(text) + ("([0-9]+)" if numbers else "")
        ranges += [numbers] if numbers else []
    match = re.fullmatch(pattern, name)
    return match is not None and all(
        any(_is_between(number, *bounds.partition("-")[::2]) for bounds in numbers.split(","))
        for number, numbers in zip(match.groups(), ranges, strict=True)
    )


def _is_between(number: str, first: str, last: str) -> bool:
    last = last or first
    is_range = first.isdigit() and last.isdigit() and len(number) >= len(first)
    return is_range and int(first) <= int(number) <= int(last)


def _placed(launcher: Launcher, environ: Mapping[str, str]) -> Placement | None:
    """Return the place that a launcher describes; `None` without a valid rank."""
    rank, world_size = _number(environ, launcher.rank), _number(environ, launcher.world_size)
    if rank is None or world_size is None or rank >= world_size:
        return None
    node = _node(launcher, environ)
    if launcher.name == "slurm":
        # In the shell of `sbatch`, SLURM_PROCID is 0 on the first node: its command would be rank 0 of the job
        # (recorder/settings/test_launcher.py).
        if "SLURM_STEP_ID" not in environ:  # the shell of a batch script is not a step
            return None
        local_size = next((environ[name] for name in launcher.local_world_size if name in environ), "")
        return Placement(rank, world_size, _tasks_on_node(local_size, node), _slurm_job(environ), node)
    local_world_size = next((_number(environ, name) for name in launcher.local_world_size if name in environ), None)
    return Placement(rank, world_size, local_world_size, _job(launcher, environ), node)


def _job(launcher: Launcher, environ: Mapping[str, str]) -> str | None:
    """Return the identity that a launcher gives a job; torchrun's default `--rdzv-id` "none" is not one."""
    for names in launcher.jobs:
        if all(environ.get(name) for name in names) and environ[names[0]] != "none":
            return f"{launcher.name}-{_digest('/'.join(environ[name] for name in names))}"
    return None


def _has_job(environ: Mapping[str, str]) -> bool:
    """Return whether a launcher gives the job an identity that no other job has."""
    named = any(_job(launcher, environ) for launcher in LAUNCHERS)
    return named or "SLURM_STEP_ID" in environ or ("PMI_RANK" in environ and _proxy() is not None)


def _unnamed_job(place: Placement, environ: Mapping[str, str]) -> str | None:
    """Return an identity of a job whose launcher sets none; `None` if its ranks have nothing in common."""
    if proxy := _proxy() if "PMI_RANK" in environ else None:
        return f"mpi-{_digest(proxy)}"
    if "RANK" in environ and (experiment := _ray_experiment()):
        return f"ray-{_digest(experiment)}"
    if place.local_world_size == place.world_size:
        return parent_job("torchrun" if "RANK" in environ else "mpi", environ)
    if "RANK" not in environ:
        return None
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    if address and port:
        # Ranks of two machines that meet at their own `localhost` are two jobs (recorder/settings/test_launcher.py).
        everywhere = address.lower() == "localhost" or address.startswith("127.") or address == "::1"
        host = socket.gethostname() if everywhere else ""
        return f"torchrun-{_digest(f'{host}/{address}:{port}')}"
    return None


def _proxy() -> str | None:
    """Return the address of `mpiexec`, an argument of Hydra's proxy, which is above this process."""
    for parent in ancestors():
        try:
            command = Path(f"/proc/{parent.partition('/')[0]}/cmdline").read_text(errors="surrogateescape")
        except OSError:
            break
        arguments = command.split("\0")
        if Path(arguments[0]).name == "hydra_pmi_proxy" and "--control-port" in arguments[:-1]:
            return arguments[arguments.index("--control-port") + 1]
    return None


def _ray_experiment() -> str | None:
    """Return the name of Ray Train's experiment, which a restarted worker keeps; `None` outside of Ray Train."""
    train = sys.modules.get("ray.train")
    try:
        return str(train.get_context().get_experiment_name() or "") if train is not None else None
    except Exception:  # not a worker, or a version without names
        return None


def _completed(inner: Placement, outer: Placement) -> Placement:
    """Return a place, completed by the surrounding launcher if both describe the same processes."""
    if (inner.rank, inner.world_size) == (outer.rank, outer.world_size):  # Slurm's PMI, or variables set by hand
        local_world_size = inner.local_world_size or outer.local_world_size
    elif outer.local_world_size == 1 and _spans_machines(outer) == _spans_machines(inner):  # one launcher per machine
        local_world_size = inner.local_world_size
    else:
        return inner
    return msgspec.structs.replace(
        inner,
        local_world_size=local_world_size,
        id=inner.id or outer.id,
        node=outer.node if inner.node is None else inner.node,
    )


def _spans_machines(place: Placement) -> bool | None:
    if place.local_world_size is None or place.world_size is None:
        return None
    return place.local_world_size < place.world_size


def _tasks_on_node(text: str, node: int | None) -> int | None:
    """Return the number of tasks of a node in Slurm's list, such as "2(x3),1", which is in the order of nodes."""
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


def parent_job(name: str, environ: Mapping[str, str]) -> str:
    """Return an identity of the launcher's process, which its ranks on this machine have in common."""
    return f"{name}-{_digest(f'{socket.gethostname()}/{supervisor(environ)}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]
