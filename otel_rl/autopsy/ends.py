"""The ends of waits: where a chain of debts ends, and which cause that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.autopsy.activity import activity_of, thread_activity
from otel_rl.autopsy.causes import KINDS
from otel_rl.autopsy.graph import is_child
from otel_rl.autopsy.helpers import may_idle
from otel_rl.autopsy.threads import is_full_pool, is_in_process, lacks_others
from otel_rl.recorder.facts.order import strongest
from otel_rl.recorder.facts.processes import ended_badly
from otel_rl.semconv.phase_categories import category_of, is_wait_for_samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_rl.autopsy.activity import ActivityKind
    from otel_rl.autopsy.evidence import MachineSeen, ProcessSeen
    from otel_rl.autopsy.graph import Debt, Graph
    from otel_rl.autopsy.nodes import Node
    from otel_rl.recorder.archive.now import MadeNow
    from otel_rl.recorder.facts.order import Evidence

_FULL_BYTES, _FULL_SHARE = 16 << 20, 0.001
"""A file system with less room than both is full."""
_FEW = 2
"""Failures one after the other that may be chance."""
_CONTROL = ("sync", "weight", "update", "pause", "sleep", "wake", "reload")
"""Parts of the names of phases whose requests to an engine are about the engine itself."""
_VAGUE: frozenset[ActivityKind] = frozenset(("queue", "loop", "thread", "lock", "sleep", "native", "unknown"))
"""Activities that do not say what is waited for: what was recorded says more."""
_WAITING: frozenset[ActivityKind] = frozenset(("queue", "lock", "loop"))
"""Those of a thread that does nothing until another one does something."""


class WaitEnd(NamedTuple):
    """The end of a chain of debts: the kind of the cause, the keys of the nodes that it is about, and the debts."""

    kind: str
    who: tuple[str, ...]
    debts: tuple[Debt, ...] = ()

    @property
    def by(self) -> Evidence:
        """The strongest evidence for it: that of the cause, or of a debt that leads to it."""
        return strongest([KINDS[self.kind].by, *(debt.by for debt in self.debts)])


def ends_of(start: str, graph: Graph, machines: Sequence[MachineSeen]) -> Iterator[WaitEnd]:
    """Yield where the waits of a node end. A circle has all of its nodes; each of its debts is proven."""
    if (kind := _of_trajectories(start, graph)) is not None:
        yield WaitEnd(kind, (start,))
    seen: set[str] = set()
    waiting: list[tuple[tuple[str, ...], tuple[Debt, ...]]] = [((start,), ())]
    while waiting:
        path, debts = waiting.pop()
        key = path[-1]
        if key in path[:-1]:
            begin = path.index(key)
            if all(debt.is_proven for debt in debts[begin:]):
                circle = sorted(path[begin:-1], key=lambda node: (not graph.nodes[node].records, node))
                yield WaitEnd("circle", tuple(circle), debts[begin:])
            else:
                yield _end(path[:-1], debts[:-1], graph, machines)
            continue
        # Marked once, for graphs in which everybody waits for everybody: their paths are too many to follow.
        if key in seen:
            continue
        seen.add(key)
        if owed := graph.waits.get(key, ()):
            waiting += [((*path, debt.to), (*debts, debt)) for debt in owed]
        else:
            yield _end(path, debts, graph, machines)


def _end(path: Sequence[str], debts: tuple[Debt, ...], graph: Graph, machines: Sequence[MachineSeen]) -> WaitEnd:
    """Return the cause that a node is which waits for nobody, with all nodes that it is about."""
    key = path[-1]
    node = graph.nodes[key]
    kind, waiter = node.activity.kind, graph.nodes[path[-2]] if len(path) > 1 else None
    if node.endpoint is not None:
        return WaitEnd(_of_endpoint(node, waiter), (key,), debts)
    if node.task is not None and node.task.error:
        return WaitEnd("task failed", (key,), debts)
    if kind == "zombie":
        if node.now is not None and node.now.outcome is not None:
            return WaitEnd("died" if ended_badly(node.now.outcome) else "left", (key,), debts)
        return WaitEnd("died" if node.records else "worker died", (key,), debts)
    if kind == "collective":
        ranks = tuple(rank for rank, other in graph.nodes.items() if other.is_rank and other.activity.kind == kind)
        return WaitEnd("mismatch" if _differ(graph, ranks) else "network", ranks, debts)
    if kind in ("file", "disk", "sleep", "busy") and any(map(has_full_disk, machines)):
        return WaitEnd("disk full", (key,), debts)
    if waiter is not None and not node.records and _is_server(node, waiter):
        return WaitEnd(_OF_SERVER.get(kind, "no answer"), (key,), debts)
    # A wait for an item of a thread that cannot put is for another queue: somebody between the two is gone.
    if kind == "put" and waiter is not None and waiter.activity.kind == "queue" and is_in_process(waiter):
        return WaitEnd("no taker", (key,), debts)
    if kind == "put" and waiter is not None and waiter.activity.kind == "child":
        return WaitEnd("not taken", (key,), debts)
    return WaitEnd(_of_process(key, debts, graph.nodes), (key,), debts)


_OF_SERVER = {"stopped": "stopped", "busy": "busy"}
"""The causes that a server is by the activity of its process; otherwise it does not answer."""


def _of_endpoint(node: Node, waiter: Node | None) -> str:
    call = node.activity.call
    if call in ("full", "works") and waiter is not None and any(part in waiter.phase for part in _CONTROL):
        return "behind"
    if call == "silent" and node.seen is not None:
        return _OF_SERVER.get(node.activity.kind, "no answer")
    return {"works": "busy"}.get(call, call)


def _of_process(key: str, debts: Sequence[Debt], nodes: Mapping[str, Node]) -> str:
    """Return which cause a process or a thread is that waits for nobody who is known."""
    node = nodes[key]
    kind = node.activity.kind
    if is_full_pool(key, nodes):
        return "full pool"
    if kind == "put":
        return "full queue"
    if kind in _VAGUE and debts and debts[-1].by == "recorded" and debts[-1].what:
        return "unfinished"
    if new_workers(key, nodes):
        return "lost result"
    if lacks_others(key, nodes):
        return "alone"
    return {"request": "no answer", "thread": "native", "loop": "queue"}.get(kind, kind)


def new_workers(key: str, nodes: Mapping[str, Node]) -> Sequence[ProcessSeen]:
    """Return the workers of a pool that were started while its process waits for a result, and all of which idle.

    `multiprocessing.Pool` replaces a worker that was killed, and never gives the result of what that one did.
    """
    node = nodes[key]
    frames = node.seen.threads[0].frames if node.seen is not None and node.seen.threads else ()
    if node.activity.kind != "queue" or not any(frame.file.endswith("multiprocessing/pool.py") for frame in frames):
        return ()
    workers = [
        other.seen
        for other in nodes.values()
        if is_child(node, other) and other.seen is not None and not other.records and not other.is_helper
    ]
    if not all(may_idle(worker, activity_of(worker)) for worker in workers):
        return ()
    return [worker for worker in workers if worker.started_unix_nano > node.since > 0]


def _samples(node: Node) -> bool:
    """Return whether a rank is in a phase that gives it trajectories."""
    return node.is_rank and (category_of(node.phase) == "rollout" or is_wait_for_samples(node.phase))


def makers_for(key: str, nodes: Mapping[str, Node]) -> Sequence[Node]:
    """Return the processes whose trajectories a rank waits for: those with a role, else itself."""
    made = [node for node in nodes.values() if node.made is not None and node.thread is None]
    return [node for node in made if not node.is_rank] or [node for node in made if node is nodes[key]]


def _of_trajectories(key: str, graph: Graph) -> str | None:
    """Return what the trajectories say that a rank waits for in its phase; `None` if they say nothing.

    While some are open, or somebody else may be awaited, only failures of many one after the other say more. A thread
    of its own that waits itself, for an event or a queue, does not say what for.
    """
    node = graph.nodes[key]
    made = [maker.made for maker in makers_for(key, graph.nodes) if maker.made is not None]
    if node.activity.kind not in _VAGUE or not _samples(node) or not made:
        return None
    is_open = sum(each.open for each in made)
    has_failed = max(each.failure_unix_nano for each in made) >= node.since
    others = [graph.nodes[debt.to] for debt in graph.waits[key]]
    if is_open or not all(other.process == key and other.activity.kind in _WAITING for other in others):
        return "failed" if has_failed and _failed(made) > max(_FEW, 2 * is_open) else None
    return "failed" if has_failed else None if others else "none open"


def _failed(made: Sequence[MadeNow]) -> int:
    """Return how many trajectories failed one after the other, of the processes that made the last ones."""
    return sum(each.failed for each in made) if all(each.failed for each in made) else 0


def _differ(graph: Graph, ranks: Sequence[str]) -> bool:
    calls = {graph.nodes[key].call for key in ranks}
    return len(calls) > 1 or any(len(calls_of(graph.nodes[key])) > 1 for key in ranks)


def calls_of(node: Node) -> list[str]:
    """Return the collectives in which the threads of a process are."""
    threads = node.seen.threads if node.seen is not None else ()
    activities = [thread_activity(thread, None) for thread in threads]
    return [f"{activity.call} at {activity.place}" for activity in activities if activity.kind == "collective"]


def _is_server(node: Node, waiter: Node) -> bool:
    return (
        node.seen is not None
        and waiter.seen is not None
        and node.seen.pid in {connection.pid for connection in waiter.seen.connections}
    )


def has_full_disk(machine: MachineSeen) -> bool:
    """Return whether a file system of a machine is full."""
    return any(is_full(disk.free, disk.size, disk.free_files) for disk in machine.disks)


def is_full(free: int, size: int, files: int) -> bool:
    """Return whether a file system of a size has no room, by its free bytes and files."""
    return size > 0 and ((free < _FULL_BYTES and free < _FULL_SHARE * size) or free == 0 or files == 0)
