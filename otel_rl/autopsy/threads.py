"""Waits inside of a process: which of its threads and tasks another one waits for, by their stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.autopsy.nodes import task_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.autopsy.activity import ActivityKind
    from otel_rl.autopsy.evidence import AsyncTask, Frame, Thread
    from otel_rl.autopsy.nodes import Node

_WORKER = ("concurrent/futures/thread.py", "_worker")
_QUEUES = ("/queue.py", "asyncio/queues.py")
_STRONG: frozenset[ActivityKind] = frozenset(("request", "child", "data", "file", "disk"))
"""Activities that a main thread waits for which polls, or whose event loop has given work to a thread."""
_BY_TASK: frozenset[ActivityKind] = frozenset(("thread", "queue", "put", "lock"))
_BY_THREAD: frozenset[ActivityKind] = frozenset(("thread", "queue", "put", "lock", "loop", "sleep"))


def awaited_threads(key: str, nodes: Mapping[str, Node]) -> Sequence[str]:
    """Return the threads of its process that a thread waits for; those that idle owe nothing.

    A thread that is joined is awaited although it idles: nothing makes it end.
    """
    node, kind = nodes[key], nodes[key].activity.kind
    if kind not in _BY_THREAD:
        return ()
    others = [other for other in _others(key, nodes) if nodes[other].task is None]
    if node.task is not None:
        return [other for other in others if nodes[other].activity.kind in _STRONG]
    active = [other for other in others if not nodes[other].is_idle]
    match kind:
        case "thread":
            return active or (others if node.thread is None else ())
        case "loop" | "sleep":
            return [other for other in active if nodes[other].activity.kind in _STRONG]
        case "lock" | "put":
            return [other for other in active if nodes[other].activity.kind != kind]
        case _:
            return active


def awaited_tasks(key: str, nodes: Mapping[str, Node]) -> Sequence[str]:
    """Return the tasks of asyncio that a task, an event loop, or a thread that waits for a result waits for.

    Those that it names are known. Else tasks that failed, or wait for another program, are likelier than others. A task
    that sleeps may be one that looks again and again.
    """
    node, kind = nodes[key], nodes[key].activity.kind
    others = [other for other in _others(key, nodes) if nodes[other].task is not None]
    if node.task is None:
        mains = [other for other in others if _task(other, nodes).is_main]
        if kind == "loop" and mains:
            return mains
        return _likeliest(others, nodes) if kind in ("loop", "thread") else []
    if node.task.awaits:
        named = {task_key(node.process, number) for number in node.task.awaits}
        return [other for other in others if other in named]
    if kind not in _BY_TASK:
        return []
    mates = [other for other in others if not _task(other, nodes).is_main and nodes[other].activity != node.activity]
    return _likeliest(mates, nodes)


def _likeliest(tasks: Sequence[str], nodes: Mapping[str, Node]) -> Sequence[str]:
    """Return the likeliest of some tasks: those that failed, then those that another program keeps, then the others."""
    kinds = {other: nodes[other].activity.kind for other in tasks}
    failed = [other for other in tasks if _task(other, nodes).error]
    strong = [other for other in tasks if kinds[other] in _STRONG]
    rest = [other for other in tasks if not nodes[other].is_idle and kinds[other] != "sleep"]
    return failed or strong or rest


def _task(key: str, nodes: Mapping[str, Node]) -> AsyncTask:
    task = nodes[key].task
    assert task is not None
    return task


def is_full_pool(key: str, nodes: Mapping[str, Node]) -> bool:
    """Return whether a thread waits for a result of thread pools whose threads all wait for such results."""
    return (
        nodes[key].activity.kind == "thread"
        and bool(workers := _workers(key, nodes))
        and all(nodes[worker].activity.kind == "thread" for worker in workers)
        and not _has_idle_worker(nodes[key])
    )


def is_in_process(node: Node) -> bool:
    """Return whether a thread waits for a queue of its own process."""
    threads: Sequence[Thread] = node.seen.threads if node.seen is not None else ()
    thread = node.thread or (threads[0] if threads else None)
    kind = node.activity.kind
    return kind in ("queue", "put") and thread is not None and any(map(_is_of_queue, thread.frames))


def lacks_others(key: str, nodes: Mapping[str, Node]) -> bool:
    """Return whether a thread waits for a queue of its process, into which no other thread of it could put anything."""
    return nodes[key].activity.kind == "queue" and is_in_process(nodes[key]) and not has_others(key, nodes)


def has_others(key: str, nodes: Mapping[str, Node]) -> bool:
    """Return whether other threads of its process run code of the user."""
    return bool(_others(key, nodes))


def full_of(key: str, nodes: Mapping[str, Node]) -> Sequence[str]:
    """Return the other threads of its process that wait to put into a full queue too."""
    return [other for other in _others(key, nodes) if nodes[other].activity.kind == "put"]


def _others(key: str, nodes: Mapping[str, Node]) -> Sequence[str]:
    process = nodes[key].process or key
    return [other for other, node in nodes.items() if node.process == process and other != key]


def _workers(key: str, nodes: Mapping[str, Node]) -> Sequence[str]:
    threads = [*_others(key, nodes), *([key] if nodes[key].thread is not None else [])]
    return [other for other in threads if (thread := nodes[other].thread) is not None and _is_worker(thread)]


def _has_idle_worker(node: Node) -> bool:
    """Return whether a thread of a pool waits for work: it has no frame above that of the pool."""
    threads = node.seen.threads if node.seen is not None else ()
    return any(thread.frames and _is_frame(thread, 0) for thread in threads)


def _is_of_queue(frame: Frame) -> bool:
    return frame.file.endswith(_QUEUES)


def _is_worker(thread: Thread) -> bool:
    return any(_is_frame(thread, number) for number in range(len(thread.frames)))


def _is_frame(thread: Thread, number: int) -> bool:
    frame = thread.frames[number]
    return frame.file.endswith(_WORKER[0]) and frame.function == _WORKER[1]
