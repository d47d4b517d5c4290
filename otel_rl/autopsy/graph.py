"""The graph of waits: who waits for whom, from what was recorded, from the kernel's view, and from stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from otel_rl.autopsy.activity import WAITS, activity_of
from otel_rl.autopsy.helpers import may_idle
from otel_rl.autopsy.nodes import nodes_of
from otel_rl.autopsy.threads import awaited_tasks, awaited_threads, is_full_pool, is_in_process
from otel_rl.recorder.facts.processes import ended_badly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from otel_rl.autopsy.evidence import ConnectionSeen, MachineSeen, ProcessSeen
    from otel_rl.autopsy.nodes import Node
    from otel_rl.recorder.archive.now import Now, Wait
    from otel_rl.recorder.facts.order import Evidence

_ASK = ("request", "loop")
_BY_ENDPOINT = (*_ASK, "native", "unknown", "queue")
_GUESSED = ("queue", "tool")
"""Recorded waits that name nobody for certain: a trajectory of any process will do, or the debtor is unknown."""


class Debt(NamedTuple):
    """Something that a node waits for another one for."""

    to: str  # the key of the node that owes it
    by: Evidence  # how it is known
    what: str = ""  # what is owed, such as `prompt 7 (tool pytest)`; empty if that was not recorded
    since: int = 0  # since when, in Unix nanoseconds; 0 if that was not recorded
    is_proven: bool = False  # if true, this node owes it and no other one can give it


class Graph(NamedTuple):
    """The nodes by their keys, and the debts that each waits for."""

    nodes: Mapping[str, Node]
    waits: Mapping[str, tuple[Debt, ...]]


def graph_of(machines: Sequence[MachineSeen], nows: Sequence[Now]) -> Graph:
    """Return who waits for whom: what can never end, then what was recorded, then what kernel and stacks say.

    A process that waits for nobody known waits for those that are dead or stopped.
    """
    nodes = nodes_of(machines, nows)
    waits = [wait for now in nows for wait in now.waits]
    vain = _recorded(nodes, [wait for wait in waits if wait.cause])
    exact = _recorded(nodes, [wait for wait in waits if wait.kind not in _GUESSED])
    guessed = _recorded(nodes, waits)
    halted = [
        key
        for key, node in nodes.items()
        if node.records
        and node.thread is None
        and (node.activity.kind == "stopped" or (node.now is not None and ended_badly(node.now.outcome)))
    ]
    owing: dict[str, tuple[Debt, ...]] = {}
    for key, node in nodes.items():
        owed = vain.get(key) or exact.get(key) or [*_debts(key, node, nodes)] or guessed.get(key, [])
        is_stuck = node.records and node.thread is None and node.activity.kind in WAITS and not node.is_idle
        left = (other for other in halted if is_stuck and other != key and not _went_on(node, nodes[other]))
        owing[key] = tuple(owed or (Debt(other, "kernel") for other in left))
    return Graph(nodes, owing)


def _went_on(node: Node, other: Node) -> bool:
    """Return whether a process has begun a step since another one recorded something: then it does not wait for it."""
    began = None if node.now is None else node.now.step_started_unix_nano
    return began is not None and other.now is not None and began > other.now.last_unix_nano


def _recorded(nodes: Mapping[str, Node], waits: Sequence[Wait]) -> dict[str, list[Debt]]:
    """Return the processes and servers that each process waits for, by what it recorded; idle ones owe nothing."""
    keys = {node.name.partition(" (")[0]: key for key, node in nodes.items() if node.records and node.thread is None}
    keys |= {key: key for key, node in nodes.items() if node.endpoint is not None}
    debts: dict[str, list[Debt]] = {}
    for wait in waits:
        waiter = keys.get(wait.waiter)
        if waiter is None or not (wait.cause or nodes[waiter].activity.kind in WAITS):
            continue
        what = f"{wait.subject} ({wait.doing})" if wait.doing else wait.subject if wait.kind == "group" else ""
        owed = [keys[name] for name in wait.debtors if name in keys and keys[name] != waiter]
        debts.setdefault(waiter, []).extend(
            Debt(key, "recorded", what, wait.since_unix_nano, bool(wait.cause) or not wait.is_any or len(owed) == 1)
            for key in owed
            if wait.cause or wait.kind != "queue" or not nodes[key].is_idle
        )
    return debts


def _debts(key: str, node: Node, nodes: Mapping[str, Node]) -> Iterator[Debt]:
    """Yield the debts that a node waits for, by the kernel and by stacks."""
    kind = node.activity.kind
    if node.seen is None or node.is_idle or node.is_helper or (node.endpoint is not None and not node.endpoint.error):
        return
    if kind == "collective":
        yield from (Debt(rank, "stack", is_proven=True) for rank in _absent(key, node, nodes))
    children = [child for child, other in nodes.items() if is_child(node, other)]
    # Records say what a child owes, but not that somebody waits for its end.
    workers = [child for child in children if not nodes[child].records]
    if kind in ("data", "child", "queue", "put"):
        yield from _of_children(kind, children if kind == "child" else workers, nodes)
    if kind in _BY_ENDPOINT and not is_in_process(node):
        yield from _servers(node, nodes)
    makers = [
        maker
        for maker, other in nodes.items()
        if other.records and not other.is_rank and other.thread is None and maker != key
    ]
    working = [child for child in workers if not _idles(nodes[child])]
    if kind in ("queue", "put", "thread", "loop") and not working and node.thread is None:
        yield from (Debt(maker, "stack") for maker in makers if not nodes[maker].is_idle)
    if kind == "sleep" and node.records and node.thread is None:  # it may look again and again whether it is there
        yield from (Debt(maker, "kernel") for maker in makers if nodes[maker].activity.kind in ("zombie", "stopped"))
        yield from (
            Debt(server, "kernel")
            for server, other in nodes.items()
            if other.endpoint is not None and other.endpoint.error
        )
    if node.records and not is_full_pool(key, nodes):
        yield from (Debt(thread, "stack") for thread in awaited_threads(key, nodes))
        named = node.task is not None and bool(node.task.awaits)
        yield from (Debt(task, "stack", is_proven=named) for task in awaited_tasks(key, nodes))
    if not node.records and node.endpoint is None:
        behind = [*_behind(node, makers, nodes)]
        yield from (Debt(maker, "kernel", is_proven=len(behind) == 1) for maker in behind)


def _of_children(kind: str, children: Sequence[str], nodes: Mapping[str, Node]) -> Iterator[Debt]:
    """Yield the debts of children: of those that have ended, else of those that are not idle."""
    dead = [child for child in children if nodes[child].activity.kind == "zombie"]
    owing = [child for child in children if not _idles(nodes[child]) and not nodes[child].is_idle]
    if kind == "child" and not owing:  # it waits for the end of a child, whatever that does
        owing = [child for child in children if not nodes[child].is_helper] or [*children]
    yield from (Debt(child, "kernel", is_proven=kind == "child" and len(children) == 1) for child in dead or owing)


def _idles(child: Node) -> bool:
    """Return whether a child is a helper, or may wait by design."""
    return child.is_helper or (child.seen is not None and may_idle(child.seen, child.activity))


def _behind(node: Node, makers: Sequence[str], nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the processes that fill a server which is a queue: they are connected to it, or have ended.

    Those that wait for an answer of the server are its clients, as of an engine.
    """
    assert node.seen is not None
    for key in makers:
        seen = nodes[key].seen
        if seen is None or (
            node.seen.pid in {connection.pid for connection in seen.connections}
            and not _asks(nodes[key], seen, node.seen.pid)
        ):
            yield key


def _asks(node: Node, seen: ProcessSeen, server: int) -> bool:
    """Return whether a process waits for an answer of a server."""
    return activity_of(seen).kind in _ASK and any(connection.pid == server for connection in _asked(node)[0])


def _asked(node: Node) -> tuple[Sequence[ConnectionSeen], bool]:
    """Return the connections over which a process or thread may wait for an answer, and whether it is surely these.

    It is one if the system call says which.
    """
    assert node.seen is not None
    kernel = node.seen.kernel if node.thread is None else node.thread.kernel
    exact = [each for each in node.seen.connections if kernel is not None and each.name == kernel.target]
    return exact or node.seen.connections, bool(exact)


def _absent(key: str, node: Node, nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the ranks that have not entered the collective of a rank: those that are in none, or have ended."""
    for rank, other in nodes.items():
        if rank != key and other.is_rank and other.activity.kind != "collective":
            yield rank


def is_child(node: Node, other: Node) -> bool:
    """Return whether a node is a process that a process has started."""
    return (
        node.seen is not None
        and other.seen is not None
        and other.thread is None
        and (other.host, other.seen.parent) == (node.host, node.seen.pid)
    )


def _servers(node: Node, nodes: Mapping[str, Node]) -> Iterator[Debt]:
    """Yield the debts of the servers that a process is connected to, without ranks: first those that do not read."""
    assert node.seen is not None
    ports = {urlsplit(other.endpoint.url).port: key for key, other in nodes.items() if other.endpoint is not None}
    servers: list[tuple[int, str, bool]] = []
    asked, is_exact = _asked(node)
    for connection in asked:
        port = int(connection.peer.rpartition(":")[2])
        key = ports.get(port, f"{node.host}/{connection.pid}")
        if key in nodes and not (nodes[key].is_rank and node.is_rank) and (is_exact or not nodes[key].is_helper):
            servers.append((-connection.peer_unread, key, is_exact))
    yield from dict.fromkeys(Debt(key, "kernel", is_proven=is_exact) for _, key, is_exact in sorted(servers))
    if not servers and (engines := list(ports.values())) and node.activity.kind in WAITS and node.thread is None:
        calls = ("silent", "stuck", "full")
        yield from (Debt(url, "kernel") for url in engines if nodes[url].activity.call in calls)
