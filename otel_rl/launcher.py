"""What the launcher's environment says of this process: its rank, its peers, the job's identity."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


NODE_VARIABLES = ("GROUP_RANK", "SLURM_NODEID")
"""Torchrun's and Slurm's number of this machine."""


def node_number(environ: Mapping[str, str]) -> str:
    """Return the number of this machine, as far as the launcher tells."""
    told = next((environ[name] for name in NODE_VARIABLES if name in environ), "")
    place = find_place(environ)
    return told or str((place.rank or 0) // (place.local_world_size or place.world_size or 1))


class Place(msgspec.Struct, frozen=True):
    """A process among its peers; `None` where the launcher does not say."""

    rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    id: str | None = None


def find_place(environ: Mapping[str, str]) -> Place:
    """Return what torchrun (and who speaks its variables), Slurm or MPI says; an empty place otherwise."""
    if "RANK" in environ and "WORLD_SIZE" in environ:
        return _place(environ, "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", _torchrun_job(environ))
    if "SLURM_STEP_ID" in environ and "SLURM_PROCID" in environ:  # a batch script's own shell is no step
        job = f"slurm-{environ.get('SLURM_JOB_ID', '')}.{environ['SLURM_STEP_ID']}"
        return _place(environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", job)
    if "OMPI_COMM_WORLD_RANK" in environ:
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
        mpi_job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
        return _place(environ, *names, f"mpi-{_digest(mpi_job)}" if mpi_job else None)
    if "PMI_RANK" in environ:  # MPICH and Intel MPI, which name no job that all ranks of all machines see
        return _place(environ, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", None)
    return Place()


def is_of_this_machine(host: str) -> bool:
    """Tell whether an address is one of this machine's: it can be listened on."""
    import socket

    try:
        found = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            continue
        return True
    return False


def _place(environ: Mapping[str, str], rank: str, size: str, local_size: str, job: str | None) -> Place:
    return Place(_number(environ, rank), _number(environ, size), _number(environ, local_size), job)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    digits = re.match(r"\d+", environ.get(name, ""))  # Slurm writes "4(x2)"
    return int(digits[0]) if digits else None


def _torchrun_job(environ: Mapping[str, str]) -> str | None:
    job = environ.get("TORCHELASTIC_RUN_ID")
    if job is None:
        return None
    if job == "none":  # torchrun without --rdzv-id: its ranks share a parent process, and nothing else that lasts
        import socket

        parent = os.getppid()
        job = f"{socket.gethostname()}/{parent}/{_started(parent)}"
    return f"torchrun-{_digest(job)}"


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:12]
