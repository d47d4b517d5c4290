"""One verdict over the evidence: the end of the waits, which is the cause, and those who wait because of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.autopsy.activity import python_frames, thread_activity
from otel_rl.autopsy.causes import KINDS
from otel_rl.autopsy.graph import graph_of
from otel_rl.recorder.archive.autopsies import Verdict
from otel_rl.recorder.archive.reports import report_of, reports_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.order import precedence
from otel_rl.recorder.facts.processes import ended_badly
from otel_rl.recorder.facts.standing import how_silent, lives, silent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.autopsy.evidence import MachineSeen
    from otel_rl.autopsy.graph import Graph, Node
    from otel_rl.recorder.archive.now import Now
    from otel_rl.recorder.facts.states import Sure

_NS = 1_000_000_000
_MOST_NAMED = 4
_FULL_BYTES, _FULL_SHARE = 16 << 20, 0.001
"""A file system with less room than both is full."""
_LITTLE_MEMORY = 0.03
_FILES = 0.98
_CONTROL = ("sync", "weight", "update", "pause", "sleep", "wake", "reload")
"""Parts of the names of phases whose requests to an engine are about the engine itself."""


class _Cause(NamedTuple):
    kind: str
    who: tuple[str, ...]  # keys of nodes
    waiters: frozenset[str]


def verdict_of(machines: Sequence[MachineSeen], nows: Sequence[Now], at: int, *, is_suspected: bool = False) -> Verdict:
    """Return why a run does not go on, or that nothing is overdue.

    Args:
        machines: The evidence of each machine.
        nows: What the agents of the run wrote last.
        at: The time in Unix nanoseconds.
        is_suspected: If true, somebody has reason to believe that the run hangs.
    """
    graph = graph_of(machines, nows)
    causes = _causes(graph, machines)
    live = [now for now in nows if lives(report_of(now), at)]
    is_late = is_suspected or any(stall.kind != "slow" for now in live for stall in now.stalled)
    vain = {wait.cause for now in live for wait in now.waits if wait.cause}
    serious = [
        candidate
        for candidate in causes
        if is_late or vain or (KINDS[candidate.kind].sure == "certain" and candidate.waiters)
    ]
    if not serious:
        return _well(graph, at)
    sure: dict[str, Sure] = {kind: "certain" if kind in vain else KINDS[kind].sure for kind in KINDS}
    order = {kind: (precedence("bad", sure[kind]), place) for place, kind in enumerate(KINDS)}
    cause = min(serious, key=lambda one: (order[one.kind], -len(one.waiters)))
    kind = KINDS[cause.kind]
    nodes = [graph.nodes[key] for key in cause.who]
    first = nodes[0]
    return Verdict(
        kind=cause.kind,
        sentence=_sentence(cause, graph, at),
        who=tuple(node.name for node in nodes),
        sure=sure[cause.kind],
        consequences=tuple(
            f"{graph.nodes[key].name} {graph.nodes[key].activity.text}{_at(graph.nodes[key])}"
            for key in sorted(cause.waiters)
        ),
        evidence=tuple(_evidence(nodes, machines, nows, at)),
        advice=kind.advice.format(pid=first.seen.pid if first.seen else "PID", host=first.host or "its machine"),
    )


def _causes(graph: Graph, machines: Sequence[MachineSeen]) -> list[_Cause]:
    """Return the ends of all waits that begin at a process that records and is not idle."""
    waiters: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for key, node in graph.nodes.items():
        if node.records and node.seen is not None and not node.is_idle:
            for kind, who in _ends(key, graph, machines):
                waiters[kind, who] |= {key} - set(who)
            if node.activity.kind == "zombie" and node.seen is not None:
                waiters["died", (key,)] |= set()
    return [_Cause(kind, who, frozenset(keys)) for (kind, who), keys in waiters.items()]


def _ends(start: str, graph: Graph, machines: Sequence[MachineSeen]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield where the waits of a node end: kind and keys; a circle has all of its nodes."""
    seen: set[str] = set()
    waiting: list[tuple[str, ...]] = [(start,)]
    while waiting:
        path = waiting.pop()
        key = path[-1]
        if key in path[:-1]:
            circle = path[path.index(key) : -1]
            yield "circle", tuple(sorted(circle, key=lambda node: (not graph.nodes[node].records, node)))
            continue
        # Marked once, for graphs in which everybody waits for everybody: their paths are too many to follow.
        if key in seen:
            continue
        seen.add(key)
        if debtors := graph.waits.get(key, ()):
            waiting += [(*path, debtor) for debtor in debtors]
        else:
            yield _kind(key, path, graph, machines)


def _kind(
    key: str, path: tuple[str, ...], graph: Graph, machines: Sequence[MachineSeen]
) -> tuple[str, tuple[str, ...]]:
    """Return the cause that a node is which waits for nobody, and the keys of all nodes that it is about."""
    node = graph.nodes[key]
    kind, waiter = node.activity.kind, graph.nodes[path[-2]] if len(path) > 1 else None
    if node.endpoint is not None:
        call = node.activity.call
        if call in ("full", "works") and waiter is not None and any(part in waiter.phase for part in _CONTROL):
            return "behind", (key,)
        return {"works": "busy"}.get(call, call), (key,)
    if kind == "zombie":
        if node.now is not None and node.now.outcome is not None:
            return ("died" if ended_badly(node.now.outcome) else "left"), (key,)
        return ("died" if node.records else "worker died"), (key,)
    if kind == "collective":
        ranks = tuple(rank for rank, other in graph.nodes.items() if other.is_rank and other.activity.kind == kind)
        return ("mismatch" if _differ(graph, ranks) else "network"), ranks
    if kind in ("file", "disk", "sleep", "busy") and any(_is_full(machine) for machine in machines):
        return "disk full", (key,)
    if waiter is not None and not node.records and _is_server(node, waiter):
        return ("stopped" if kind == "stopped" else "busy" if kind == "busy" else "no answer"), (key,)
    return {"request": "no answer", "thread": "native", "loop": "queue"}.get(kind, kind), (key,)


def _differ(graph: Graph, ranks: Sequence[str]) -> bool:
    calls = {graph.nodes[key].call for key in ranks}
    return len(calls) > 1 or any(len(_calls(graph.nodes[key])) > 1 for key in ranks)


def _calls(node: Node) -> list[str]:
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


def _sentence(cause: _Cause, graph: Graph, at: int) -> str:
    nodes = [graph.nodes[key] for key in cause.who]
    if cause.kind == "mismatch":
        return f"The ranks wait in different collectives: {_apart(nodes)}."
    if cause.kind == "network":
        where = f"{nodes[0].activity.call}{_at(nodes[0])}"
        return f"All {wording.count(len(nodes), 'rank')} that were seen wait in the same {where}{_for(nodes[0], at)}."
    if cause.kind == "circle":
        return f"{wording.capitalized(wording.names([node.name for node in nodes], _MOST_NAMED))} wait for each other."
    node = nodes[0]
    text = f"{wording.capitalized(node.name)} {node.activity.text}{_at(node)}"
    if cause.kind == "no answer" and node.seen is not None and not node.records:
        text = f"{wording.capitalized(node.name)} has not answered: it {node.activity.text}{_at(node)}"
    if cause.kind == "lock":
        text += "".join(f" and, in another thread, at {place}" for place in _other_locks(node)[:1])
    if node.phase:
        text += f" in {node.phase}"
    text += _for(node, at)
    others = [graph.nodes[key] for key in sorted(cause.waiters)]
    if cause.kind == "behind":
        return f"{text}; {others[0].phase} of {others[0].name} waits behind them."
    if not others:
        return f"{text}."
    named = wording.names([other.name for other in others], _MOST_NAMED)
    calls = sorted({other.activity.call for other in others if other.activity.call})
    where = f" in {wording.names(calls, 2)}" if calls else ""
    return f"{text}; {named} {'waits' if len(others) == 1 else 'wait'} for it{where}."


def _other_locks(node: Node) -> list[str]:
    """Return where other threads of a process wait for a lock: likely for each other's."""
    threads = node.seen.threads[1:] if node.seen is not None else ()
    activities = (thread_activity(thread, None) for thread in threads)
    return [activity.place for activity in activities if activity.kind == "lock" and activity.place]


def _apart(nodes: Sequence[Node]) -> str:
    """Return who is in which collective, the fewest first."""
    places: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        calls = _calls(node) or [f"{node.activity.call}{_at(node)}"]
        step = f"step {node.now.step}" if node.now is not None and node.now.step is not None else ""
        details = ", ".join(filter(None, (step, node.call[-1])))
        places[f"in {' and '.join(calls)}{f' ({details})' if details else ''}"].append(node)
    ordered = sorted(places.items(), key=lambda item: len(item[1]))
    return "; ".join(
        f"{wording.names([node.name for node in of_place], _MOST_NAMED)} {place}" for place, of_place in ordered
    )


def _evidence(nodes: Iterable[Node], machines: Sequence[MachineSeen], nows: Sequence[Now], at: int) -> Iterable[str]:
    if quiet := silent(reports_of(nows), at):
        yield how_silent(quiet)
    for node in list(nodes)[:_MOST_NAMED]:
        seen = node.seen
        if node.now is not None:
            step = "outside of any step" if node.now.step is None else f"in step {node.now.step:,}"
            ago = wording.seconds(max(0, at - node.now.last_unix_nano) / _NS)
            yield f"{node.name}: {step}, recorded something last {ago} ago"
        if seen is not None and (kernel := seen.kernel) is not None:
            facts = [f"state {kernel.state}", kernel.wchan, kernel.syscall, f"{wording.percent(kernel.busy)} of a CPU"]
            yield f"{node.name}: process {seen.pid}, {', '.join(filter(None, facts))}"
            if kernel.files_limit and kernel.files >= _FILES * kernel.files_limit:
                yield f"{node.name}: {kernel.files:,} of {kernel.files_limit:,} files are open"
            unread = sum(connection.peer_unread for connection in seen.connections)
            if unread:
                yield f"{node.name}: {unread:,} bytes that it has sent were not read"
        for number, thread in enumerate(seen.threads if seen is not None else ()):
            if (frames := python_frames(thread.frames)) and number < _MOST_NAMED:
                frame = frames[0]
                what = f": {frame.source}" if frame.source else ""
                yield f"{node.name}, thread {number}: {frame.file.rpartition('/')[2]}:{frame.line}{what}"
        if seen is not None and seen.missing and node.records:
            yield f"{node.name}: no stacks: {seen.missing}"
    yield from _of_groups(machines)
    for machine in machines:
        yield from _of_machine(machine)


def _of_groups(machines: Sequence[MachineSeen]) -> Iterable[str]:
    """Yield at which collective the ranks of each process group are, where they differ, by the Flight Recorder."""
    groups: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for process in (process for machine in machines for process in machine.processes):
        for last in process.collectives:
            groups[last.group][f"{last.number:,} ({last.operation} of {last.sizes})"].append(process.rank)
    for group, places in groups.items():
        if len(places) > 1:
            ranks_at = (f"rank {wording.names(list(map(str, ranks)))} at {place}" for place, ranks in places.items())
            yield f"{group}, as PyTorch's Flight Recorder counts them: {'; '.join(sorted(ranks_at))}"


def _of_machine(machine: MachineSeen) -> Iterable[str]:
    for disk in machine.disks:
        if _is_full_disk(disk.free, disk.size, disk.free_files):
            yield f"{machine.host}: the file system of {disk.path} is full"
    if machine.memory_free is not None and machine.memory_free < _LITTLE_MEMORY:
        yield f"{machine.host}: {wording.percent(machine.memory_free)} of the memory is free"
    if machine.oom_kills:
        killed = wording.count(machine.oom_kills, "process", "processes")
        yield f"{machine.host}: the kernel has killed {killed} of this cgroup for lack of memory"
    if machine.devices:
        used = (f"{device.name} {wording.percent(device.utilization or 0.0)}" for device in machine.devices)
        yield f"{machine.host}: GPUs: {wording.names(list(used), 8)}"
    for endpoint in machine.endpoints:
        load = f"{wording.number(endpoint.running or 0)} requests run, {wording.number(endpoint.waiting or 0)} wait"
        yield f"engine {endpoint.url}: {endpoint.error or load}"


def _is_full(machine: MachineSeen) -> bool:
    return any(_is_full_disk(disk.free, disk.size, disk.free_files) for disk in machine.disks)


def _is_full_disk(free: int, size: int, files: int) -> bool:
    return size > 0 and ((free < _FULL_BYTES and free < _FULL_SHARE * size) or free == 0 or files == 0)


def _well(graph: Graph, at: int) -> Verdict:
    living = [node for node in graph.nodes.values() if node.records and node.seen is not None]
    if not living:
        return Verdict(kind="ended", sentence="No process of the run was seen alive.", sure="likely")
    steps = [node.now.step for node in living if node.now is not None and node.now.step is not None and node.is_rank]
    phases = sorted({node.phase for node in living if node.phase})
    where = f" in step {max(steps):,}" if steps else ""
    doing = f", {wording.names(phases)}" if phases else ""
    count = wording.count(len(living), "process", "processes")
    return Verdict(
        kind="well",
        sentence=f"Nothing is overdue: {count}{where}{doing}.",
        sure="likely",
        advice="If it hangs all the same, add --cause hangs: then the likeliest cause is named.",
        evidence=tuple(f"{node.name} {node.activity.text}{_at(node)}{_for(node, at)}" for node in living[:_MOST_NAMED]),
    )


def _for(node: Node, at: int) -> str:
    if node.now is None:
        return ""
    last = node.now.ended_unix_nano or node.now.last_unix_nano
    since = node.now.phases[-1].started_unix_nano if node.now.phases else last
    ago = wording.seconds(max(0, at - since) / _NS)
    return f", {ago} ago" if node.activity.kind == "zombie" else f", for {ago}"


def _at(node: Node) -> str:
    return f" at {node.activity.place}" if node.activity.place else ""
