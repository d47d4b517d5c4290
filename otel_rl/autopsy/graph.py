"""The graph of waits: the processes and servers of a run as nodes, and who waits for whom, from the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from otel_rl.autopsy.activity import WAITS, Activity, activity_of
from otel_rl.autopsy.evidence import EndpointSeen
from otel_rl.insight import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.archive.now import Now, ProcessNow, Wait
    from otel_rl.autopsy.evidence import Connection, Machine, ProcessSeen

_MOST_COMMAND = 60
_LIMIT_FULL = 0.95
_ASK = ("request", "loop")
_REASONS = {"stale": "too old"}
_BY_ENDPOINT = (*_ASK, "native", "unknown", "queue", "thread")


class Node(NamedTuple):
    """A process or a server.

    Attributes:
        name: How it is called: `rank 3`, `rollout 1 (node2)`, `engine http://…`.
        activity: What it does.
        is_rank: If true, it is a rank of the trainer.
        records: If true, it records, so that its phases are known.
        seen: The evidence; `None` for an endpoint, or a process that has gone.
        now: What it recorded last.
        phase: Its innermost open phase.
        endpoint: The evidence of an endpoint.
        host: Its machine.
    """

    name: str
    activity: Activity
    is_rank: bool = False
    records: bool = False
    seen: ProcessSeen | None = None
    now: ProcessNow | None = None
    endpoint: EndpointSeen | None = None
    host: str = ""

    @property
    def phase(self) -> str:
        """Its innermost open phase; empty outside of any."""
        return self.now.phases[-1].name if self.now is not None and self.now.phases else ""

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


def graph_of(machines: Sequence[Machine], nows: Sequence[Now]) -> Graph:
    """Return who waits for whom: what can never end by the records, then what stacks say, then other records.

    A process that waits for nobody known waits for those that are dead or stopped.
    """
    nodes = {**_nodes(machines, nows), **_gone_servers(nows)}
    waits = [one for now in nows for one in now.waits]
    vain, recorded = _recorded(nodes, [one for one in waits if one.cause]), _recorded(nodes, waits)
    halted = [
        key
        for key, node in nodes.items()
        if node.records
        and (node.activity.kind == "stopped" or (node.now is not None and node.now.outcome not in (None, "finished")))
    ]
    found: dict[str, tuple[str, ...]] = {}
    for key, node in nodes.items():
        owed = vain.get(key) or [*_debtors(key, node, nodes)] or recorded.get(key, [])
        is_stuck = node.records and node.activity.kind in WAITS
        found[key] = tuple(
            owed or (one for one in halted if is_stuck and one != key and not _went_on(node, nodes[one]))
        )
    return Graph(nodes, found)


def _went_on(node: Node, other: Node) -> bool:
    """Return whether a process has begun a step since another one recorded something: then it does not wait for it."""
    began = None if node.now is None else node.now.step_started_unix_nano
    return began is not None and other.now is not None and began > other.now.last_unix_nano


def _gone_servers(nows: Sequence[Now]) -> dict[str, Node]:
    """Return the servers at whose addresses nobody listens, by the agents' verdicts."""
    names = {f"{one.role or 'rank'} {one.rank}" for now in nows for one in now.processes}
    dead = {name for now in nows for one in now.waits if one.cause == "dead" for name in one.culprits}
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
    found: dict[str, list[str]] = {}
    for one in waits:
        waiter = keys.get(one.waiter)
        if waiter is not None and (one.cause or nodes[waiter].activity.kind in WAITS):
            owed = (keys[name] for name in one.debtors if name in keys and keys[name] != waiter)
            found.setdefault(waiter, []).extend(owed)
    return found


def _nodes(machines: Sequence[Machine], nows: Sequence[Now]) -> dict[str, Node]:
    recorded = {(one.host, one.pid): one for now in nows for one in now.processes}
    last = max((one.attempt for one in recorded.values()), default=0)
    recorded = {key: one for key, one in recorded.items() if one.attempt == last}
    is_alone = len({one.host for one in recorded.values()} | {one.host for one in machines}) < 2
    nodes: dict[str, Node] = {}
    names: dict[tuple[str, int], str] = {}
    for machine in machines:
        at = "" if is_alone else f" ({machine.host})"
        for one in machine.processes:
            if one.rank >= 0:
                known = recorded.get((machine.host, one.pid), one)
                names[machine.host, one.pid] = f"{known.role or 'rank'} {known.rank}{at}"
        for one in machine.processes:
            now = recorded.get((machine.host, one.pid))
            activity = _unless_it_drops(activity_of(one), now, machine.time_unix_nano)
            name = names.get((machine.host, one.pid)) or _name(one, names.get((machine.host, one.parent), ""), machine)
            nodes[f"{machine.host}/{one.pid}"] = Node(
                name, activity, one.rank >= 0 and not one.role, one.rank >= 0, one, now, None, machine.host
            )
        for endpoint in machine.endpoints:
            nodes.setdefault(endpoint.url, Node(f"engine {endpoint.url}", _engine(endpoint), endpoint=endpoint))
    places = {(one.role, one.rank) for one in recorded.values() if one.outcome is None}
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
            lost = "was killed, or disappeared" if ended.error in ("", "lost") else f"was {ended.error}"
            how = {"finished": "has ended well", "lost": lost}
            text = how.get(ended.outcome, f"{ended.outcome}{f' with {ended.error}' if ended.error else ''}")
            activity = Activity("zombie", text)
        name = f"{ended.role or 'rank'} {ended.rank}{at}"
        nodes[key] = Node(name, activity, not ended.role, True, None, ended, None, host)
    return nodes


def _unless_it_drops(activity: Activity, now: ProcessNow | None, at: int) -> Activity:
    """Return the activity of a process; that it drops all trajectories, if it did so in the later half of its phase."""
    if now is None or not (now.dropped and now.phases) or activity.kind in ("stopped", "zombie"):
        return activity
    if at - now.dropped_unix_nano > (at - now.phases[-1].started_unix_nano) / 2:
        return activity
    reasons = sorted(now.dropped.items(), key=lambda one: -one[1])
    said = wording.names([f"{number:,} as {_REASONS.get(reason, reason)}" for reason, number in reasons])
    return Activity("drops", f"drops all trajectories ({said})", activity.place)


def _name(one: ProcessSeen, parent: str, machine: Machine) -> str:
    if parent:
        return f"child process {one.pid} of {parent}"
    port = next((each.peer for other in machine.processes for each in other.connections if each.pid == one.pid), "")
    served = f"the server at {port}" if port else f"process {one.pid}"
    return f"{served} ({one.command[:_MOST_COMMAND].strip()})" if one.command else served


def _engine(seen: EndpointSeen) -> Activity:
    running, waiting = seen.running or 0.0, seen.waiting or 0.0
    if seen.error:
        return Activity("unknown", f"does not answer: {seen.error}", call="silent")
    if running and seen.rate == 0:
        return Activity("unknown", f"has {running:g} requests, but generates no token", call="stuck")
    if waiting and (waiting >= running or (seen.cache or 0.0) >= _LIMIT_FULL):
        return Activity("busy", f"is full: {running:g} requests run, {waiting:g} wait", call="full")
    if not running and not waiting and seen.running is not None:
        return Activity("unknown", "is well and has no request", call="idle")
    return Activity("busy", f"works on {running:g} requests", call="works")


def _debtors(key: str, node: Node, nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the keys of the nodes that a node waits for."""
    kind = node.activity.kind
    if node.endpoint is not None or node.seen is None:
        return
    if kind == "collective":
        yield from _absent(key, node, nodes)
    children = [one for one, other in nodes.items() if _is_child(node, other)]
    if kind in ("data", "child", "queue"):
        dead = [one for one in children if nodes[one].activity.kind == "zombie"]
        yield from dead or children
    if kind in _BY_ENDPOINT:
        yield from _servers(node, nodes)
    makers = [one for one, other in nodes.items() if other.records and not other.is_rank and one != key]
    if kind in ("queue", "thread", "loop") and not children:
        yield from makers
    if kind == "sleep" and node.records:  # it may look again and again whether something is there
        yield from (one for one in makers if nodes[one].activity.kind in ("zombie", "stopped"))
        yield from (one for one, other in nodes.items() if other.endpoint is not None and other.endpoint.error)
    if not node.records and node.endpoint is None:
        yield from _behind(node, makers, nodes)


def _behind(node: Node, makers: Sequence[str], nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the processes that fill a server which is a queue: they are connected to it, or have ended.

    Those that wait for an answer of the server are its clients, as of an engine.
    """
    assert node.seen is not None
    for key in makers:
        seen = nodes[key].seen
        if seen is None or (node.seen.pid in {one.pid for one in seen.connections} and not _asks(seen, node.seen.pid)):
            yield key


def _asks(seen: ProcessSeen, server: int) -> bool:
    """Return whether a process waits for an answer of a server."""
    return activity_of(seen).kind in _ASK and any(one.pid == server for one in _asked(seen))


def _asked(seen: ProcessSeen) -> Sequence[Connection]:
    """Return the connections over which a process may wait for an answer: one, if the system call says which."""
    exact = [one for one in seen.connections if seen.kernel is not None and one.name == seen.kernel.target]
    return exact or seen.connections


def _absent(key: str, node: Node, nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the ranks that have not entered the collective of a rank: those that are in none, or have ended."""
    for one, other in nodes.items():
        if one != key and other.is_rank and other.activity.kind != "collective":
            yield one


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
    found: list[tuple[int, str]] = []
    for one in _asked(node.seen):
        port = int(one.peer.rpartition(":")[2])
        key = ports.get(port, f"{node.host}/{one.pid}")
        if key in nodes and not (nodes[key].is_rank and node.is_rank):
            found.append((-one.peer_unread, key))
    yield from dict.fromkeys(key for _, key in sorted(found))
    if not found and (engines := list(ports.values())) and node.activity.kind in WAITS:
        yield from (url for url in engines if nodes[url].activity.call in ("silent", "stuck", "full"))
