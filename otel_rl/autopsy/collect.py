"""The evidence of one machine: the processes of a run, looked at twice, with all that they are connected to."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.autopsy import endpoints, flight, kernel, machine, py_spy, stacks
from otel_rl.autopsy.activity import activity_of
from otel_rl.autopsy.evidence import MachineSeen, ProcessSeen
from otel_rl.autopsy.sockets import connections_of, listeners_at
from otel_rl.autopsy.stacks import is_own
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.secret_options import HIDDEN_QUERY
from otel_rl.recorder.files.atomic_files import read_shown_json
from otel_rl.recorder.files.locks import is_held
from otel_rl.recorder.files.signals import stacks_of
from otel_rl.recorder.journal.claim import JournalOwner, is_journal, process_in, who_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from otel_rl.autopsy.evidence import Collective, EndpointSeen, Frame, Thread

_BETWEEN_S = 0.7
"""Seconds between two looks at least: a loop that works moves meanwhile."""
_LEAST_MOVED = 1 << 20
"""Bytes per second: who moves so many works, in whichever line it is."""
_MOST_RECORDERS, _MOST_DESCENDANTS, _MOST_FORKS, _MOST_SPIED = 256, 256, 8, 16
_SPY_S, _ENDPOINTS_S = 20.0, 6.0
_SETTLED_S = 2.0
"""Age in seconds of a forked process that is asked: before, it may be about to run another program."""
_CLOCKS_DIFFER_S = 2.0
_OWN = ("otel_rl.recorder.agent", "otel_rl/recorder/agent", "otel_rl.autopsy", "otel-rl ")
_NOT_PYTHON = "it does not record"


class _RecordingProcess(NamedTuple):
    pid: int
    role: str
    rank: int
    asked: stacks.Asked | None
    missing: str
    journal: Path


def look(run: Path, cause: str = "") -> MachineSeen:
    """Return what is seen on this machine of a run, within about 10 s, and 30 s with py-spy."""
    missing: list[str] = []
    hidden: list[int] = []
    answers: list[tuple[EndpointSeen, ...]] = []
    recorders = {recorder.pid: recorder for recorder in list(_recorders(run, missing, hidden))[:_MOST_RECORDERS]}
    engines = _engines(run, recorders, missing)
    # While the stacks are taken: silent engines take seconds, in which the processes would go on.
    polling = machine.started(lambda: answers.append(endpoints.look_at(engines)))
    collectives = flight.ask({pid: recorder.journal for pid, recorder in recorders.items()}, missing)
    ports = {url: port for url in engines if (port := endpoints.port_of(url)) is not None}
    listeners = listeners_at(ports.values())
    processes = _spied(list(_processes(recorders, collectives, listeners.values())), deeply=bool(cause))
    polling.join(_ENDPOINTS_S)
    disks, silent = machine.disks_of([str(run), *(kernel.working_directory(pid) for pid in recorders)])
    missing += [f"the file system of {path} does not respond" for path in silent]
    gpus = machine.devices()
    if gpus is None:
        missing.append("the GPU driver does not respond")
    return MachineSeen(
        host=socket.gethostname(),
        time_unix_nano=time.time_ns(),
        cause=cause,
        processes=tuple(processes),
        endpoints=tuple(
            msgspec.structs.replace(endpoint, pid=listeners.get(ports.get(endpoint.url, 0), 0))
            for endpoint in (answers[0] if answers else ())
        ),
        disks=disks,
        devices=gpus or (),
        memory_free=machine.memory_free(),
        oom_kills=machine.oom_kills(),
        missing=tuple(missing),
        hidden=tuple(hidden),
    )


def _processes(
    recorders: Mapping[int, _RecordingProcess],
    collectives: Mapping[int, tuple[Collective, ...]],
    serving: Iterable[int],
) -> Iterable[ProcessSeen]:
    """Yield the processes that record, their descendants, and the servers that they know or are connected to."""
    parents = _descendants(recorders)
    own = [*recorders, *parents]
    asked = {pid: recorder.asked for pid, recorder in recorders.items() if recorder.asked is not None}
    began, first = time.monotonic(), _cpu(own)
    first_of_threads = {pid: kernel.cpu_of_threads(pid) for pid in asked}
    moved = {pid: kernel.moved_by(pid) for pid in own}
    # Asked twice: a process that is in the same line both times hangs or spins; one that moved works.
    before = stacks.ask(asked.values())
    answers: dict[int, tuple[Thread, ...] | str] = dict(_forks(parents, asked))
    time.sleep(max(0.0, _BETWEEN_S - (time.monotonic() - began)))
    seconds, last = time.monotonic() - began, _cpu(own)
    busy = {pid: _busy(earlier, kernel.cpu_of_threads(pid), seconds) for pid, earlier in first_of_threads.items()}
    answers |= stacks.ask(asked.values())
    moved = {pid: kernel.moved_by(pid) - before for pid, before in moved.items()}
    connections = connections_of(own)
    peers = {connection.pid for of_process in connections.values() for connection in of_process if connection.pid}
    peers |= set(serving)
    for pid in (*own, *sorted(peers - {*own, os.getpid()})):
        view = kernel.view_of(pid, max(0.0, last.get(pid, 0.0) - first.get(pid, last.get(pid, 0.0))) / seconds)
        command = kernel.command_of(pid)
        if view is None or any(name in command for name in _OWN):
            continue
        recorder, answer, earlier = recorders.get(pid), answers.get(pid, _NOT_PYTHON), before.get(pid, "")
        threads = _seen_threads(pid, answer, earlier, busy.get(pid, {})) if isinstance(answer, tuple) else ()
        yield ProcessSeen(
            pid=pid,
            parent=parents.get(pid) or _parent_among(own, pid),
            role=recorder.role if recorder is not None else "",
            rank=recorder.rank if recorder is not None else -1,
            command=command,
            started_unix_nano=_started(pid),
            kernel=view,
            threads=threads,
            tasks=stacks.tasks_of(asked[pid]) if threads and pid in asked else (),
            moves=moved.get(pid, 0) / seconds >= _LEAST_MOVED
            or (isinstance(earlier, tuple) and _main(earlier) != _main(threads)),
            missing="" if threads else (recorder.missing if recorder and recorder.missing else str(answer)),
            connections=connections.get(pid, ()),
            collectives=collectives.get(pid, ()),
        )


def _recorders(run: Path, missing: list[str], hidden: list[int]) -> Iterable[_RecordingProcess]:
    """Yield the living processes of this machine that record the run."""
    for directory in directories.here(run):
        for journal in sorted(directory.journals.glob("*")):
            if not is_journal(journal.name) or not is_held(journal):
                continue
            owner = read_shown_json(journal / "owner.json", JournalOwner, journal)
            who = who_of(journal.name)
            if owner is None:
                missing.append(f"{who}: its process is unknown")
                continue
            place = stacks_of(journal)
            stat = kernel.stat_of(owner.pid)
            # In another PID namespace, the number is of nobody or of a process that started after the journal was
            # claimed: its stacks would be a stranger's, and a signal would end it.
            if stat is None or time.time() - kernel.age_of(stat) > owner.time / 1e9 + _CLOCKS_DIFFER_S:
                missing.append(f"{who}: its process is in another container")
                hidden.append(owner.pid)
                continue
            asked = stacks.Asked(owner.pid, *place) if place is not None else None
            why = "" if place is not None else "it has no signal that asks for them"
            yield _RecordingProcess(owner.pid, *process_in(who), asked, why, journal)


def _parent_among(own: Collection[int], pid: int) -> int:
    """Return the parent of a process that records, if it is one of the run's; 0 otherwise."""
    stat = kernel.stat_of(pid)
    return stat.parent if stat is not None and stat.parent in own else 0


def _descendants(roots: Iterable[int]) -> dict[int, int]:
    """Return the descendants of processes with their parents, without those of otel-rl and the roots themselves."""
    stats = {pid: stat for pid in kernel.all_pids() if (stat := kernel.stat_of(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    parents: dict[int, int] = {}
    own, waiting = {*roots, os.getpid()}, list(roots)
    while waiting and len(parents) < _MOST_DESCENDANTS:
        parent = waiting.pop(0)
        for pid in children.get(parent, ()):
            if pid not in own and pid not in parents and not any(name in kernel.command_of(pid) for name in _OWN):
                parents[pid] = parent
                waiting.append(pid)
    return parents


def _forks(parents: Mapping[int, int], asked: Mapping[int, stacks.Asked]) -> dict[int, tuple[Thread, ...] | str]:
    """Return the stacks of forked processes that have inherited the handler; each is asked after the other."""
    answers: dict[int, tuple[Thread, ...] | str] = {}
    forks = [
        pid for pid in parents if (of_parent := asked.get(parents[pid])) is not None and _is_settled(pid, of_parent)
    ]
    for pid in forks[:_MOST_FORKS]:  # they share the file of their parent: two at once would write into each other
        answers |= stacks.ask([asked[parents[pid]]._replace(pid=pid, has_thread=False)])
    return answers


def _is_settled(pid: int, asked: stacks.Asked) -> bool:
    stat = kernel.stat_of(pid)
    return stat is not None and kernel.catches(pid, asked.number) and kernel.age_of(stat) > _SETTLED_S


def _spied(processes: list[ProcessSeen], *, deeply: bool) -> list[ProcessSeen]:
    """Return the processes, with stacks by py-spy of those that have none; `deeply` looks into C code that waits."""
    without = [
        process for process in processes if not process.threads or (deeply and activity_of(process).kind == "native")
    ]
    without = [process for process in without if process.kernel is not None and process.kernel.state != "Z"]
    program = py_spy.program()
    if program is None or not without:
        return processes
    spied: dict[int, ProcessSeen] = {}
    deadline = time.monotonic() + _SPY_S
    for process in [process for process in without if process.rank >= 0 or "python" in process.command][:_MOST_SPIED]:
        answer = py_spy.stacks(process.pid, program) if time.monotonic() < deadline else "there was no time"
        if isinstance(answer, tuple):
            spied[process.pid] = msgspec.structs.replace(process, threads=answer, missing="")
        elif not process.threads:
            spied[process.pid] = msgspec.structs.replace(process, missing=f"{process.missing}; {answer}")
    return [spied.get(process.pid, process) for process in processes]


def _engines(run: Path, recorders: Iterable[int], missing: list[str]) -> list[str]:
    """Return the addresses of inference servers, if a process of this user records the run here.

    Of any other run, `run.json` may be somebody else's: nothing is asked where it says.
    """
    for directory in directories.here(run):
        try:
            engines = directories.read_manifest(directory).agent.hardware.engines
        except (OSError, ValueError):
            continue
        asked = [url for url in engines if not url.endswith(HIDDEN_QUERY)] if any(map(is_own, recorders)) else []
        if left := len(engines) - len(asked):
            why = "their addresses have secrets" if asked else "no process of yours records the run here"
            missing.append(f"{left} inference servers of run.json: they are not asked, since {why}")
        return asked
    return []


def _busy(first: Mapping[int, float], last: Mapping[int, float], seconds: float) -> dict[int, float]:
    """Return the number of CPUs that each thread used."""
    return {thread: max(0.0, cpu - first.get(thread, 0.0)) / seconds for thread, cpu in last.items()}


def _seen_threads(
    pid: int, threads: tuple[Thread, ...], earlier: tuple[Thread, ...] | str, busy: Mapping[int, float]
) -> tuple[Thread, ...]:
    """Return threads with the kernel's view of each whose number is known, and whether it moved."""
    before = {thread.number: thread.frames for thread in earlier} if isinstance(earlier, tuple) else {}
    return tuple(
        msgspec.structs.replace(
            thread,
            kernel=kernel.view_of_thread(pid, thread.number, busy.get(thread.number, 0.0)),
            moves=thread.number in before and _lines(before[thread.number]) != _lines(thread.frames),
        )
        if thread.number
        else thread
        for thread in threads
    )


def _lines(frames: Iterable[Frame]) -> list[tuple[str, int]]:
    return [(frame.file, frame.line) for frame in frames]


def _started(pid: int) -> int:
    stat = kernel.stat_of(pid)
    return 0 if stat is None else time.time_ns() - round(kernel.age_of(stat) * 1e9)


def _cpu(pids: Iterable[int]) -> dict[int, float]:
    return {pid: stat.cpu for pid in pids if (stat := kernel.stat_of(pid)) is not None}


def _main(threads: tuple[Thread, ...]) -> list[tuple[str, int]]:
    return _lines(threads[0].frames) if threads else []
