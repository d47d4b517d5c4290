"""The trainer's processes with all their descendants, by psutil."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from otel_rl import semconv
from otel_rl.analysis import Attributes, Point
from otel_rl.recorder.agent.hardware import cgroup
from otel_rl.recorder.agent.hardware.recorder_processes import RecorderProcesses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


_CLOCKS_DIFFER_S = 2.0

_Key = tuple[int, float]
"""A unique identity of a process: its id, and when it was created."""


class TrainerProcess(NamedTuple):
    """A trainer process: its id in its own PID namespace, and its `CUDA_VISIBLE_DEVICES`, `None` where it is not set.

    The role is empty for an ordinary rank. `started_unix_nano` is the time of the first record.
    """

    pid: int
    rank: int
    role: str
    visible_devices: str | None
    started_unix_nano: int


class _Total(NamedTuple):
    cpu: float
    resident: int
    threads: int
    files: int
    processes: int


class _Tree:
    """One trainer process and its descendants.

    A descendant stays one when its parent ends and the kernel gives it another parent.
    """

    def __init__(self) -> None:
        self.members: dict[_Key, psutil.Process] = {}
        self.cpu: dict[_Key, float] = {}  # of those that have ended, too: a counter does not fall
        self.before: tuple[int, float] | None = None


class Processes:
    """All watched trees; no process is counted in two of them."""

    name = "processes"

    def __init__(self, watched: Callable[[], Sequence[TrainerProcess]], now: Callable[[], int]) -> None:
        self._watched, self._now = watched, now
        self._trees: dict[_Key, _Tree] = {}
        self._recorder = RecorderProcesses()
        self._own = cgroup.find()

    def read(self) -> Iterator[Point]:
        """Measure."""
        candidates = ((trainer, process_of(trainer.pid, trainer.started_unix_nano)) for trainer in self._watched())
        roots = [(trainer, process) for trainer, process in candidates if process is not None]
        others = {process.pid for _, process in roots}
        living = {_key(process) for _, process in roots}
        self._trees = {key: tree for key, tree in self._trees.items() if key in living}
        children = _children() if roots else {}
        for trainer, process in roots:
            tree = self._trees.setdefault(_key(process), _Tree())
            _grow(tree, process, others, children, self._recorder)
            yield from self._points(trainer, tree)

    def _points(self, trainer: TrainerProcess, tree: _Tree) -> Iterator[Point]:
        now = self._now()
        total = _measure(tree)
        identity: dict[str, str | int] = {semconv.RANK: trainer.rank, semconv.PROCESS_SCOPE: "tree"}
        attributes: Attributes = tuple(
            sorted((identity | ({semconv.ROLE: trainer.role} if trainer.role else {})).items())
        )
        yield Point(semconv.METRIC_PROCESS_CPU_TIME, total.cpu, attributes)
        if tree.before is not None and now > tree.before[0]:
            seconds = (now - tree.before[0]) / 1e9
            busy = (total.cpu - tree.before[1]) / seconds
            yield Point(semconv.METRIC_PROCESS_CPU_UTILIZATION, busy / _available_cpus(trainer.pid), attributes)
        tree.before = (now, total.cpu)
        yield Point(semconv.METRIC_PROCESS_MEMORY_USAGE, total.resident, attributes)
        yield Point(semconv.METRIC_PROCESS_THREAD_COUNT, total.threads, attributes)
        yield Point(semconv.METRIC_PROCESS_UNIX_FILE_DESCRIPTOR_COUNT, total.files, attributes)
        yield Point(semconv.METRIC_PROCESS_COUNT, total.processes, attributes)
        group = cgroup.find(Path(f"/proc/{trainer.pid}/cgroup"))
        if group is not None and self._own is not None and group.path != self._own.path:
            yield from group.memory(attributes)  # the limit that kills it is not the agent's


def process_of(pid: int, started_unix_nano: int) -> psutil.Process | None:
    """Return the process if it is the one that started to record: ids are reused, and differ between namespaces."""
    try:
        process = psutil.Process(pid)
        began = process.create_time()
    except psutil.Error:
        return None
    return process if began <= started_unix_nano / 1e9 + _CLOCKS_DIFFER_S else None


def _available_cpus(pid: int) -> int:
    """Return the number of CPUs that a process may run on."""
    try:
        return len(os.sched_getaffinity(pid))
    except (AttributeError, OSError):  # macOS has none; or the process has just ended
        return os.cpu_count() or 1


def _children() -> dict[int, list[psutil.Process]]:
    """Return the children of every process of the machine, from one listing."""
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
    return children


def _grow(
    tree: _Tree,
    root: psutil.Process,
    others: set[int],
    children: Mapping[int, list[psutil.Process]],
    recorder: RecorderProcesses,
) -> None:
    """Add the descendants of the root and of known members, except the recorder's and processes with their own tree."""
    waiting = [root, *(process for process in tree.members.values() if process.pid != root.pid)]
    tree.members = {}
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(psutil.Error):  # it may end at any moment
            if _key(process) not in tree.members and process.is_running():
                tree.members[_key(process)] = process
                born = (child for child in children.get(process.pid, ()) if child.pid not in others)
                waiting += [child for child in born if not recorder.has(child, root)]


def _measure(tree: _Tree) -> _Total:
    resident = threads = files = processes = 0
    for key, process in tree.members.items():
        with contextlib.suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            tree.cpu[key] = max(tree.cpu.get(key, 0.0), times.user + times.system)
            resident += process.memory_info().rss
            threads += process.num_threads()
            processes += 1
            files += process.num_fds()
    return _Total(sum(tree.cpu.values()), resident, threads, files, processes)


def _key(process: psutil.Process) -> _Key:
    return process.pid, process.create_time()
