"""Limits of the process and of its cgroup, and what an autopsy may look at."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.autopsy.doctor.check import Check
from otel_rl.recorder.agent.hardware import cgroup
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.analysis import Point
    from otel_rl.autopsy.doctor.check import CheckedMachine

_LIMITS, _PERMISSIONS = "limits", "permissions"
_FILES = 4096
"""Open files below which a trainer with many workers and data loaders may run out of them."""
_SHM = 1 << 30
"""Bytes of /dev/shm that data loaders and NCCL need; containers have 64 MiB by default."""
_NEARLY_FULL = 0.95
_INFINIBAND = Path("/sys/class/infiniband")


def limits(machine: CheckedMachine) -> Iterator[Check]:
    """Check open files, locked memory and the memory of the cgroup."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        fix = f"ulimit -n {_FILES if hard == resource.RLIM_INFINITY else min(_FILES * 16, hard)}"
        yield Check(_LIMITS, "warning", f"a process may open {soft:,} files (ulimit -n)", fix)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY and _INFINIBAND.is_dir():
        what = f"a process may lock {wording.memory(locked)} of memory, and RDMA needs more"
        yield Check(_LIMITS, "warning", what, "ulimit -l unlimited; in Docker: --ulimit memlock=-1")
    yield from _cgroup({point.metric: point.value for point in _measured()})


def _measured() -> list[Point]:
    group = cgroup.find()
    return [] if group is None else list(group.read())


def _cgroup(values: dict[str, float]) -> Iterator[Check]:
    limit = values.get(semconv.METRIC_CONTAINER_MEMORY_LIMIT, 0.0)
    used = values.get(semconv.METRIC_CONTAINER_MEMORY_USAGE, 0.0)
    kills = int(values.get(semconv.METRIC_CONTAINER_MEMORY_OOM_KILLS, 0))
    if limit and used >= _NEARLY_FULL * limit:
        what = f"the cgroup uses {wording.memory_of(used, limit)} of memory"
        yield Check(_LIMITS, "warning", what, "Give the job more memory; the kernel kills a process at the limit.")
    if kills:
        what = f"the kernel has killed {wording.count(kills, 'process', 'processes')} of this cgroup for memory"
        yield Check(_LIMITS, "warning", what, "Look at memory in `otel-rl report`, and give the job more.")
    if not kills and not (limit and used >= _NEARLY_FULL * limit):
        room = f"memory {wording.memory_of(used, limit)}" if limit else "no limit of memory"
        yield Check(_LIMITS, "ok", room)


def permissions(machine: CheckedMachine) -> Iterator[Check]:
    """Check what an autopsy may look at, shared memory, and whose the run is."""
    scope = _ptrace_scope()
    is_root = os.geteuid() == 0
    if scope and not is_root:
        fix = "sudo sysctl kernel.yama.ptrace_scope=0; in Docker: --cap-add SYS_PTRACE. Python stacks need neither."
        yield Check(_PERMISSIONS, "warning", f"native stacks cannot be read (ptrace_scope is {scope})", fix)
    if not os.access("/dev/kmsg", os.R_OK):
        yield Check(_PERMISSIONS, "ok", "the kernel's log cannot be read; cgroups count processes killed for memory")
    yield _shared_memory()
    if machine.run is not None and not is_root:
        owner = machine.run.path.stat().st_uid
        if owner != os.geteuid():
            fix = "Look as the user who started it, or start it with OTEL_RL_SHARE=group."
            yield Check(_PERMISSIONS, "warning", f"the run belongs to user {owner}, not to you", fix)


def _shared_memory(place: Path = Path("/dev/shm")) -> Check:
    if not os.access(place, os.W_OK):
        fix = "Mount it: data loaders and NCCL need it."
        return Check(_PERMISSIONS, "warning", f"{place} cannot be written", fix)
    room = shutil.disk_usage(place)
    if room.total < _SHM:
        fix = "In Docker: --shm-size=8g, or --ipc=host; in Kubernetes, an emptyDir with medium Memory."
        return Check(_PERMISSIONS, "warning", f"{place} has only {wording.memory(room.total)}", fix)
    return Check(_PERMISSIONS, "ok", f"{place} has {wording.memory(room.free)} free")


def _ptrace_scope() -> int:
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return 0
