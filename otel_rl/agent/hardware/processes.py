"""The trainer's processes with all their descendants, by psutil."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

import psutil

from otel_rl import semconv
from otel_rl.agent.hardware.measurement import Attributes, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from otel_rl.agent.hardware.measurement import Watched

_CLOCKS_DIFFER_S = 2.0

_Key = tuple[int, float]
"""A unique identity of a process: its id, and when it was created."""


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

    def __init__(self, watched: Callable[[], Sequence[Watched]], now: Callable[[], int]) -> None:
        self._watched, self._now = watched, now
        self._trees: dict[_Key, _Tree] = {}

    def read(self) -> Iterator[Point]:
        """Measure."""
        found = ((one, process_of(one.pid, one.started_unix_nano)) for one in self._watched())
        roots = [(one, process) for one, process in found if process is not None]
        others = {process.pid for _, process in roots} | {os.getpid()}  # the agent mostly descends from a trainer
        living = {_key(process) for _, process in roots}
        self._trees = {key: tree for key, tree in self._trees.items() if key in living}
        children = _children() if roots else {}
        for one, process in roots:
            tree = self._trees.setdefault(_key(process), _Tree())
            _grow(tree, process, others, children)
            yield from self._points(one, tree)

    def _points(self, one: Watched, tree: _Tree) -> Iterator[Point]:
        now = self._now()
        total = _measure(tree)
        identity: dict[str, str | int] = {semconv.RANK: one.rank, semconv.PROCESS_SCOPE: "tree"}
        who: Attributes = tuple(sorted((identity | ({semconv.ROLE: one.role} if one.role else {})).items()))
        yield Point(semconv.METRIC_PROCESS_CPU_TIME, total.cpu, who)
        if tree.before is not None and now > tree.before[0]:
            seconds = (now - tree.before[0]) / 1e9
            busy = (total.cpu - tree.before[1]) / seconds
            yield Point(semconv.METRIC_PROCESS_CPU_UTILIZATION, busy / _available_cpus(one.pid), who)
        tree.before = (now, total.cpu)
        yield Point(semconv.METRIC_PROCESS_MEMORY_USAGE, total.resident, who)
        yield Point(semconv.METRIC_PROCESS_THREAD_COUNT, total.threads, who)
        yield Point(semconv.METRIC_PROCESS_UNIX_FILE_DESCRIPTOR_COUNT, total.files, who)
        yield Point(semconv.METRIC_PROCESS_COUNT, total.processes, who)


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
    found: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        found.setdefault(process.info["ppid"], []).append(process)
    return found


def _grow(tree: _Tree, root: psutil.Process, others: set[int], children: Mapping[int, list[psutil.Process]]) -> None:
    """Add the descendants of the root and of known members, except the agent and processes with their own tree."""
    waiting = [root, *(process for process in tree.members.values() if process.pid != root.pid)]
    tree.members = {}
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(psutil.Error):  # it may end at any moment
            if _key(process) not in tree.members and process.is_running():
                tree.members[_key(process)] = process
                waiting += [child for child in children.get(process.pid, ()) if child.pid not in others]


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
