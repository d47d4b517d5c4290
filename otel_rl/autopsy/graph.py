"""The graph of waits: the processes and servers of a run as nodes, and who waits for whom, from the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from otel_rl.autopsy.activity import WAITS, Activity, activity_of
from otel_rl.autopsy.evidence import EndpointSeen
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.processes import ended_badly, how_it_ended, process_name
from otel_rl.semconv.phase_categories import is_wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.autopsy.evidence import ConnectionSeen, MachineSeen, ProcessSeen
    from otel_rl.recorder.archive.now import Now, ProcessNow, Wait

_MOST_COMMAND = 60
_LIMIT_FULL = 0.95
_ASK = ("request", "loop")
_REASONS = {"stale": "too old"}
_BY_ENDPOINT = (*_ASK, "native", "unknown", "queue", "thread")


class Node(NamedTuple):
    """A process or a server."""

    name: str  # how it is called: `rank 3`, `rollout 1 (node2)`, `engine http://…`
    activity: Activity  # what it does
    is_rank: bool = False  # if true, it is a rank of the trainer
    records: bool = False  # if true, it records, so that its phases are known
    seen: ProcessSeen | None = None  # the evidence; `None` for an endpoint, or a process that has gone
    now: ProcessNow | None = None  # what it recorded last
    endpoint: EndpointSeen | None = None  # the evidence of an endpoint
    host: str = ""  # its machine

    @property
    def phase(self) -> str:
        """Its innermost open phase, or the one in which it ended badly; empty outside of any."""
        if self.now is None:
            return ""
        return self.now.phases[-1].name if self.now.phases else self.now.ended_phase

    @property
    def is_idle(self) -> bool:
        """Whether it is a process with a role that waits by design, as long as it may take."""
        return not self.is_rank and is_wait(self.phase) and self.activity.kind in (*WAITS, "sleep")

    @property
    def call(self) -> tuple[str, str, int | None, str]:
        """The collective that it is in: operation, place in the code, step, and number by the Flight Recorder."""
        last = self.seen.collectives[-1] if self.seen is not None and self.seen.collectives else None
        number = f"number {last.number} of {last.group}" if last is not None else ""
        return self.activity.call, self.activity.place, self.now.step if self.now is not None else None, number


class Graph(NamedTuple):
    """The nodes by their keys, and the keys of those that each waits for."""

    nodes: Mapping[str, Node]
    waits: Mapping[str, tuple[str, ...]]


def graph_of(machines: Sequence[MachineSeen], nows: Sequence[Now]) -> Graph:
    """Return who waits for whom: what can never end by the records, then what stacks say, then other records.

    A process that waits for nobody known waits for those that are dead or stopped.
    """
    nodes = {**_nodes(machines, nows), **_gone_servers(nows)}
    waits = [wait for now in nows for wait in now.waits]
    vain, recorded = _recorded(nodes, [wait for wait in waits if wait.cause]), _recorded(nodes, waits)
    halted = [
        key
        for key, node in nodes.items()
        if node.records
        and (node.activity.kind == "stopped" or (node.now is not None and ended_badly(node.now.outcome)))
    ]
    owing: dict[str, tuple[str, ...]] = {}
    for key, node in nodes.items():
        owed = vain.get(key) or [*_debtors(key, node, nodes)] or recorded.get(key, [])
        is_stuck = node.records and node.activity.kind in WAITS
        owing[key] = tuple(
            owed or (other for other in halted if is_stuck and other != key and not _went_on(node, nodes[other]))
        )
    return Graph(nodes, owing)


def _went_on(node: Node, other: Node) -> bool:
    """Return whether a process has begun a step since another one recorded something: then it does not wait for it."""
    began = None if node.now is None else node.now.step_started_unix_nano
    return began is not None and other.now is not None and began > other.now.last_unix_nano


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


def _recorded(nodes: Mapping[str, Node], waits: Sequence[Wait]) -> dict[str, list[str]]:
    """Return the processes and servers that each process waits for, by what it recorded."""
    keys = {node.name.partition(" (")[0]: key for key, node in nodes.items() if node.records}
    keys |= {key: key for key, node in nodes.items() if node.endpoint is not None}
    debtors: dict[str, list[str]] = {}
    for wait in waits:
        waiter = keys.get(wait.waiter)
        if waiter is not None and (wait.cause or nodes[waiter].activity.kind in WAITS):
            owed = (keys[name] for name in wait.debtors if name in keys and keys[name] != waiter)
            debtors.setdefault(waiter, []).extend(owed)
    return debtors


def _nodes(machines: Sequence[MachineSeen], nows: Sequence[Now]) -> dict[str, Node]:
    recorded = {(process.host, process.pid): process for now in nows for process in now.processes}
    # Processes of earlier attempts are in `now.json` too; their ends are not the cause of this hang.
    last = max((process.attempt for process in recorded.values()), default=0)
    recorded = {key: process for key, process in recorded.items() if process.attempt == last}
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
            nodes[f"{machine.host}/{process.pid}"] = Node(
                name,
                activity,
                process.rank >= 0 and not process.role,
                process.rank >= 0,
                process,
                now,
                None,
                machine.host,
            )
        for endpoint in machine.endpoints:
            nodes.setdefault(endpoint.url, Node(f"engine {endpoint.url}", _engine(endpoint), endpoint=endpoint))
    places = {(process.role, process.rank) for process in recorded.values() if process.outcome is None}
    for (host, pid), ended in recorded.items():
        key = f"{host}/{pid}"
        if (key in nodes) if ended.outcome is None else ((ended.role, ended.rank) in places):
            continue  # it was seen, or another process has taken its place
        at = "" if is_alone else f" ({host})"
        looked = next((machine for machine in machines if machine.host == host), None)
        activity = Activity("unknown", "was not looked at")
        if ended.outcome is None and looked is not None and pid not in looked.hidden:
            activity = Activity("zombie", "is gone")
        elif ended.outcome is not None:
            activity = Activity("zombie", how_it_ended(ended.outcome, ended.error, ended.cause))
        name = process_name(ended.role, ended.rank) + at
        nodes[key] = Node(name, activity, not ended.role, True, None, ended, None, host)
    return nodes


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
    if parent:
        return f"child process {process.pid} of {parent}"
    port = next(
        (
            connection.peer
            for other in machine.processes
            for connection in other.connections
            if connection.pid == process.pid
        ),
        "",
    )
    served = f"the server at {port}" if port else f"process {process.pid}"
    return f"{served} ({process.command[:_MOST_COMMAND].strip()})" if process.command else served


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


def _debtors(key: str, node: Node, nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the keys of the nodes that a node waits for."""
    kind = node.activity.kind
    if node.endpoint is not None or node.seen is None:
        return
    if kind == "collective":
        yield from _absent(key, node, nodes)
    children = [child for child, other in nodes.items() if _is_child(node, other)]
    if kind in ("data", "child", "queue"):
        dead = [child for child in children if nodes[child].activity.kind == "zombie"]
        yield from dead or children
    if kind in _BY_ENDPOINT:
        yield from _servers(node, nodes)
    makers = [maker for maker, other in nodes.items() if other.records and not other.is_rank and maker != key]
    if kind in ("queue", "thread", "loop") and not children:
        yield from makers
    if kind == "sleep" and node.records:  # it may look again and again whether something is there
        yield from (maker for maker in makers if nodes[maker].activity.kind in ("zombie", "stopped"))
        yield from (server for server, other in nodes.items() if other.endpoint is not None and other.endpoint.error)
    if not node.records and node.endpoint is None:
        yield from _behind(node, makers, nodes)


def _behind(node: Node, makers: Sequence[str], nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the processes that fill a server which is a queue: they are connected to it, or have ended.

    Those that wait for an answer of the server are its clients, as of an engine.
    """
    assert node.seen is not None
    for key in makers:
        seen = nodes[key].seen
        if seen is None or (
            node.seen.pid in {connection.pid for connection in seen.connections} and not _asks(seen, node.seen.pid)
        ):
            yield key


def _asks(seen: ProcessSeen, server: int) -> bool:
    """Return whether a process waits for an answer of a server."""
    return activity_of(seen).kind in _ASK and any(connection.pid == server for connection in _asked(seen))


def _asked(seen: ProcessSeen) -> Sequence[ConnectionSeen]:
    """Return the connections over which a process may wait for an answer: one, if the system call says which."""
    exact = [
        connection
        for connection in seen.connections
        if seen.kernel is not None and connection.name == seen.kernel.target
    ]
    return exact or seen.connections


def _absent(key: str, node: Node, nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the ranks that have not entered the collective of a rank: those that are in none, or have ended."""
    for rank, other in nodes.items():
        if rank != key and other.is_rank and other.activity.kind != "collective":
            yield rank


def _is_child(node: Node, other: Node) -> bool:
    return (
        node.seen is not None
        and other.seen is not None
        and not other.records
        and (other.host, other.seen.parent) == (node.host, node.seen.pid)
    )


def _servers(node: Node, nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the servers that a process is connected to, without ranks: first those that do not read."""
    assert node.seen is not None
    ports = {urlsplit(other.endpoint.url).port: key for key, other in nodes.items() if other.endpoint is not None}
    servers: list[tuple[int, str]] = []
    for connection in _asked(node.seen):
        port = int(connection.peer.rpartition(":")[2])
        key = ports.get(port, f"{node.host}/{connection.pid}")
        if key in nodes and not (nodes[key].is_rank and node.is_rank):
            servers.append((-connection.peer_unread, key))
    yield from dict.fromkeys(key for _, key in sorted(servers))
    if not servers and (engines := list(ports.values())) and node.activity.kind in WAITS:
        yield from (url for url in engines if nodes[url].activity.call in ("silent", "stuck", "full"))
