"""The nodes of the graph of waits: processes, their threads, and servers, each with what it does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.autopsy.activity import WAITS, Activity, activity_of, thread_activity
from otel_rl.autopsy.evidence import EndpointSeen, Thread
from otel_rl.autopsy.helpers import is_helper, is_helper_thread
from otel_rl.autopsy.tasks import task_activity
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.processes import how_it_ended, process_name
from otel_rl.recorder.facts.unusual import how_unusual, is_unusual
from otel_rl.semconv.phase_categories import is_wait

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.autopsy.evidence import AsyncTask, MachineSeen, ProcessSeen
    from otel_rl.recorder.archive.now import MadeNow, Now, ProcessNow

_NS = 1_000_000_000
_LIMIT_FULL = 0.95
_UNNAMED = re.compile(r"Task-\d+\Z")
"""The names of tasks to which nobody has given one."""
_REASONS = {"stale": "too old"}


class Node(NamedTuple):
    """A process, a thread of one besides the main thread, or a server."""

    name: str  # how it is called: `rank 3`, `rollout 1 (node2)`, `thread loader of rank 0`, `engine http://…`
    activity: Activity  # what it does
    is_rank: bool = False  # if true, it is a rank of the trainer
    records: bool = False  # if true, it records, so that its phases are known
    seen: ProcessSeen | None = None  # the evidence; `None` for an endpoint, or a process that has gone
    now: ProcessNow | None = None  # what it recorded last
    endpoint: EndpointSeen | None = None  # the evidence of an endpoint
    host: str = ""  # its machine
    is_helper: bool = False  # if true, it serves a library, and waits by design
    thread: Thread | None = None  # the thread or task; `None` for a process or a server
    task: AsyncTask | None = None  # the task of asyncio, if it is one
    process: str = ""  # the key of the process of a thread; empty otherwise
    made: MadeNow | None = None  # the trajectories that it has made, if it has made any

    @property
    def phase(self) -> str:
        """Its innermost open phase, or the one in which it ended badly; empty outside of any."""
        if self.now is None:
            return ""
        return self.now.phases[-1].name if self.now.phases else self.now.ended_phase

    @property
    def takes(self) -> str:
        """The thing whose time is usual or not: its phase, or the time to the next step that it names in `log`."""
        return self.phase or "the step"

    @property
    def since(self) -> int:
        """When it began its innermost phase, or recorded something last, in Unix nanoseconds; 0 if that is unknown."""
        if self.now is None:
            return 0
        last = self.now.ended_unix_nano or self.now.last_unix_nano
        return self.now.phases[-1].started_unix_nano if self.now.phases else last

    def age(self, at: int) -> float:
        """Return for how many seconds it has been where it is."""
        return max(0, at - self.since) / _NS

    def unusual(self, at: int) -> str:
        """Return how unusual the time in its phase is, in words; empty if it is not, or unknown."""
        usual = self.now.usual_s if self.now is not None and self.is_rank else None
        return how_unusual(self.age(at), usual) if is_unusual(self.age(at), usual) else ""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for work, as long as it may take: such a process or thread owes nothing.

        A process whose phases or trajectories are known has none of them open then.
        """
        kind = self.activity.kind
        if self.is_rank or kind not in (*WAITS, "sleep"):
            return False
        if self.task is not None and self.task.is_main:
            return False
        if self.thread is not None or not self.records:
            return kind == "queue" or self.activity.text == "waits for connections"
        if is_wait(self.phase):
            return True
        has_work = bool(self.phase) or (self.made is not None and self.made.open > 0)
        return not has_work and (kind == "queue" or self.made is not None)

    @property
    def call(self) -> tuple[str, str, int | None, str]:
        """The collective that it is in: operation, place in the code, step, and number by the Flight Recorder."""
        last = self.seen.collectives[-1] if self.seen is not None and self.seen.collectives else None
        number = f"number {last.number} of {last.group}" if last is not None else ""
        return self.activity.call, self.activity.place, self.now.step if self.now is not None else None, number


def nodes_of(machines: Sequence[MachineSeen], nows: Sequence[Now]) -> dict[str, Node]:
    """Return all nodes by their keys; a process and the endpoint that it serves are one node."""
    nodes = {**_processes(machines, nows), **_gone_servers(nows)}
    for machine in machines:
        for endpoint in machine.endpoints:
            serves = nodes.get(f"{machine.host}/{endpoint.pid}")
            if serves is None or serves.records:
                nodes.setdefault(endpoint.url, Node(f"engine {endpoint.url}", _engine(endpoint), endpoint=endpoint))
            else:
                del nodes[f"{machine.host}/{endpoint.pid}"]
                nodes[endpoint.url] = _served(endpoint, serves)
    return nodes


def _gone_servers(nows: Sequence[Now]) -> dict[str, Node]:
    """Return the servers at whose addresses nobody listens, by the agents' verdicts."""
    names = {process_name(process.role, process.rank) for now in nows for process in now.processes}
    dead = {name for now in nows for wait in now.waits if wait.cause == "dead" for name in wait.culprits}
    silent = Activity("unknown", "is gone: nobody listens there", call="silent")
    return {
        name: Node(f"the server at {name}", silent, endpoint=EndpointSeen(url=f"http://{name}", error="nobody listens"))
        for name in dead
        if name.partition(" (")[0] not in names
    }


def _processes(machines: Sequence[MachineSeen], nows: Sequence[Now]) -> dict[str, Node]:
    recorded = {(process.host, process.pid): process for now in nows for process in now.processes}
    # Processes of earlier attempts are in `now.json` too; their ends are not the cause of this hang.
    last = max((process.attempt for process in recorded.values()), default=0)
    recorded = {key: process for key, process in recorded.items() if process.attempt == last}
    made = {(process.role, process.rank): process for now in nows for process in now.made}
    is_alone = len({process.host for process in recorded.values()} | {machine.host for machine in machines}) < 2
    nodes: dict[str, Node] = {}
    names: dict[tuple[str, int], str] = {}
    for machine in machines:
        at = "" if is_alone else f" ({machine.host})"
        for process in machine.processes:
            if process.rank >= 0:
                known = recorded.get((machine.host, process.pid), process)
                names[machine.host, process.pid] = process_name(known.role, known.rank) + at
        for process in machine.processes:
            now = recorded.get((machine.host, process.pid))
            activity = _unless_it_drops(activity_of(process), now, machine.time_unix_nano)
            name = names.get((machine.host, process.pid)) or _name(
                process, names.get((machine.host, process.parent), ""), machine
            )
            if now is not None and _lives_on(process, now):
                name = f"{process_name(now.role, now.rank)}{at} (finished)"
            key = f"{machine.host}/{process.pid}"
            node = Node(
                name,
                activity,
                process.rank >= 0 and not process.role,
                process.rank >= 0,
                process,
                now,
                None,
                machine.host,
                is_helper(process),
                made=made.get((process.role, process.rank)),
            )
            nodes |= {key: node, **dict(_threads(key, node)), **dict(_tasks(key, node))}
    places = {(process.role, process.rank) for process in recorded.values() if process.outcome is None}
    for (host, pid), ended in recorded.items():
        key = f"{host}/{pid}"
        if (key in nodes) if ended.outcome is None else ((ended.role, ended.rank) in places):
            continue  # it was seen, or another process has taken its place
        if key in nodes and (living := nodes[key].seen) is not None and _lives_on(living, ended):
            continue
        at = "" if is_alone else f" ({host})"
        looked = next((machine for machine in machines if machine.host == host), None)
        activity = Activity("unknown", "was not looked at")
        if ended.outcome is None and looked is not None and pid not in looked.hidden:
            activity = Activity("zombie", "is gone")
        elif ended.outcome is not None:
            activity = Activity("zombie", how_it_ended(ended.outcome, ended.error, ended.cause))
        name = process_name(ended.role, ended.rank) + at
        made_of = made.get((ended.role, ended.rank))
        nodes[key] = Node(name, activity, not ended.role, True, None, ended, None, host, made=made_of)
    return nodes


def _lives_on(process: ProcessSeen, recorded: ProcessNow) -> bool:
    """Return whether a process other than a rank lives on after it has finished its recording.

    A number is given again: a process that started later is another one. A rank that has finished enters no collective.
    """
    ended = recorded.ended_unix_nano or 0
    return bool(recorded.role) and recorded.outcome == "finished" and process.started_unix_nano < ended


def _served(endpoint: EndpointSeen, serves: Node) -> Node:
    """Return the node of an endpoint and the process that listens there."""
    activity = _engine(endpoint)
    if endpoint.error:
        activity = serves.activity._replace(call="silent")
    own = serves.name.partition(" at ")[0]  # the URL says where
    process = own if serves.seen is None or serves.seen.parent else f"process {serves.seen.pid}"
    name = f"engine {endpoint.url} ({process})"
    return serves._replace(name=name, activity=activity, endpoint=endpoint)


def _threads(key: str, of: Node) -> Iterator[tuple[str, Node]]:
    """Yield the threads of a process that records, without the main thread and without helpers."""
    for number, thread in enumerate(of.seen.threads[1:] if of.seen is not None and of.records else (), 1):
        activity = thread_activity(thread, thread.kernel, moves=thread.moves)
        if not is_helper_thread(thread, activity):
            called = thread.name or str(number)
            name = f"{'' if called.startswith('Thread') else 'thread '}{called} of {of.name}"
            yield (
                f"{key}#{number}",
                of._replace(name=name, activity=activity, is_rank=False, thread=thread, process=key),
            )


def _tasks(key: str, of: Node) -> Iterator[tuple[str, Node]]:
    """Yield the tasks of asyncio of a process that records, without helpers."""
    for number, task in enumerate(of.seen.tasks if of.seen is not None and of.records else ()):
        activity, thread = task_activity(task), Thread(task.frames)
        if task.error or task.awaits or not is_helper_thread(thread, activity):
            called = task.frames[-1].function if task.frames and _UNNAMED.match(task.name) else task.name
            yield (
                task_key(key, number),
                of._replace(
                    name=f"task {called} of {of.name}",
                    activity=activity,
                    is_rank=False,
                    thread=thread,
                    task=task,
                    process=key,
                ),
            )


def task_key(process: str, number: int) -> str:
    """Return the key of a task, by its place among those of its process."""
    return f"{process}~{number}"


def _unless_it_drops(activity: Activity, now: ProcessNow | None, at: int) -> Activity:
    """Return the activity of a process; that it drops all trajectories, if it did so in the later half of its phase."""
    if now is None or not (now.dropped and now.phases) or activity.kind in ("stopped", "zombie"):
        return activity
    if at - now.dropped_unix_nano > (at - now.phases[-1].started_unix_nano) / 2:
        return activity
    reasons = sorted(now.dropped.items(), key=lambda item: -item[1])
    counts = wording.names([f"{number:,} as {_REASONS.get(reason, reason)}" for reason, number in reasons])
    return Activity("drops", f"drops all trajectories ({counts})", activity.place)


def _name(process: ProcessSeen, parent: str, machine: MachineSeen) -> str:
    port = next(
        (
            connection.peer
            for other in machine.processes
            for connection in other.connections
            if connection.pid == process.pid
        ),
        "",
    )
    if parent:
        return f"child process {process.pid} of {parent}{f' at {port}' if port else ''}"
    served = f"the server at {port}" if port else f"process {process.pid}"
    return f"{served} ({command})" if (command := process.shown_command) else served


def _engine(seen: EndpointSeen) -> Activity:
    running, waiting = seen.running or 0.0, seen.waiting or 0.0
    if seen.error:
        return Activity("unknown", f"does not answer: {seen.error}", call="silent")
    if running and seen.rate == 0:
        return Activity("unknown", f"has {wording.number(running)} requests, but generates no token", call="stuck")
    if waiting and (waiting >= running or (seen.cache or 0.0) >= _LIMIT_FULL):
        run, wait = wording.number(running), wording.number(waiting)
        return Activity("busy", f"is full: {run} requests run, {wait} wait", call="full")
    if not running and not waiting and seen.running is not None:
        return Activity("unknown", "is well and has no request", call="idle")
    return Activity("busy", f"works on {wording.number(running)} requests", call="works")
