"""Verdicts in words: the cause, who waits because of it, and what was seen that says so."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from otel_rl.autopsy.activity import caller_of, place_of, python_frames, thread_activity
from otel_rl.autopsy.ends import calls_of, is_full, makers_for, new_workers
from otel_rl.autopsy.threads import full_of, has_others
from otel_rl.recorder.archive.reports import reports_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.standing import how_silent, silent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.autopsy.ends import WaitEnd
    from otel_rl.autopsy.evidence import MachineSeen
    from otel_rl.autopsy.graph import Graph
    from otel_rl.autopsy.nodes import Node
    from otel_rl.recorder.archive.now import Now

_NS = 1_000_000_000
_MOST_NAMED = 4
_LITTLE_MEMORY = 0.03
_FILES = 0.98


def sentence_of(end: WaitEnd, waiters: Sequence[Node], graph: Graph, at: int) -> str:
    """Return a cause in words, and who waits because of it."""
    nodes = [graph.nodes[key] for key in end.who]
    node = nodes[0]
    match end.kind:
        case "mismatch":
            return f"The ranks wait in different collectives: {_apart(nodes)}."
        case "network":
            where = f"{node.activity.call}{at_place(node)}"
            return (
                f"All {wording.count(len(nodes), 'rank')} that were seen wait in the same {where}{for_time(node, at)}."
            )
        case "circle":
            return (
                f"{wording.capitalized(wording.names([each.name for each in nodes], _MOST_NAMED))} wait for each other."
            )
        case "failed" | "none open":
            does = f"{node.name} {node.activity.text}{at_place(node)}{_in_phase(node)}"
            return f"{_of_trajectories(end, graph, at)}; {does}."
        case "behind":
            text = f"{wording.capitalized(node.name)} {node.activity.text}{for_time(node, at)}"
            return f"{text}; {waiters[0].phase} of {waiters[0].name} waits behind them."
    return f"{_what(end, node, graph, at)}{_by_way_of(end, graph)}{_who_waits(waiters, node)}."


def _what(end: WaitEnd, node: Node, graph: Graph, at: int) -> str:
    """Return what the cause does, in words."""
    name, does = wording.capitalized(node.name), f"{node.activity.text}{at_place(node)}"
    match end.kind:
        case "unfinished":
            debt = end.debts[-1]
            return f"{name} has not finished {debt.what} for {_ago(debt.since, at)}: it {does}"
        case "no answer" if node.seen is not None and not node.records:
            text = f"{name} has not answered: it {does}"
        case "full queue":
            others = [graph.nodes[key].name for key in full_of(end.who[0], graph.nodes)]
            too = f", {wording.names(others, _MOST_NAMED)} {'waits' if len(others) == 1 else 'wait'} to put too"
            text = f"{name} {does}, and nothing takes from it{too if others else ''}"
        case "no taker":
            text = f"{name} {does}, and no thread is left that takes from it"
        case "full pool":
            text = f"{name} waits for a pool of threads that is full: all of them wait for results of the same pool"
            text += at_place(node)
        case "alone":
            text = f"{name} {does}, but no other thread or task of it is left that could put into it"
        case "lost result":
            ago = _ago(max(new.started_unix_nano for new in new_workers(end.who[0], graph.nodes)), at)
            text = f"{name} {does}: a worker of its pool was started {ago} ago, so the one before it has ended"
            text += ", and its result never comes"
        case "lock":
            text = f"{name} {does}" + "".join(f" and, in another thread, at {place}" for place in _locks(node)[:1])
        case _:
            command = node.seen.shown_command if node.seen is not None and not node.records else ""
            text = f"{name}{f' ({command})' if command and 'child' in node.name else ''} {does}"
    return f"{text}{_in_phase(node)}{for_time(node, at)}"


def _by_way_of(end: WaitEnd, graph: Graph) -> str:
    """Return which task or thread waits for a cause directly, if it is not the one that the cause is of."""
    before = graph.nodes[end.debts[-2].to] if len(end.debts) > 1 else None
    if before is None or before.thread is None or not before.activity.place:
        return ""
    return f"; {before.name} waits for it{at_place(before)}"


def _who_waits(waiters: Sequence[Node], node: Node) -> str:
    """Return who waits behind a cause: first the main thread of its process, if the cause is another thread."""
    own = [waiter for waiter in waiters if node.thread is not None and waiter.seen is node.seen]
    others = [waiter for waiter in waiters if waiter not in own]
    text = f"; {own[0].name} waits for it{at_place(own[0])}" if own else ""
    if not others:
        return text
    named = wording.names([waiter.name for waiter in others], _MOST_NAMED)
    calls = sorted({waiter.activity.call for waiter in others if waiter.activity.call})
    where = f" in {wording.names(calls, 2)}" if calls else ""
    verb = "waits" if len(others) == 1 else "wait"
    return f"{text}; {named} {verb} for {own[0].name if own else 'it'}{where}"


def _of_trajectories(end: WaitEnd, graph: Graph, at: int) -> str:
    """Return how the trajectories ended that a rank waits for."""
    makers = [(node.name, node.made) for node in makers_for(end.who[0], graph.nodes) if node.made is not None]
    if end.kind == "failed":
        name, made = max(makers, key=lambda maker: maker[1].failure_unix_nano)
        ago = _ago(made.failure_unix_nano, at)
        if made.failed > 1:
            return f"The last {made.failed:,} trajectories of {name} failed, the newest one {ago} ago with {made.error}"
        return f"A trajectory of {name} ({made.failure}) failed {ago} ago with {made.error}, and none is open"
    name, made = max(makers, key=lambda maker: maker[1].last_unix_nano)
    total = sum(made.ended for _, made in makers)
    node = graph.nodes[end.who[0]]
    is_alone = name == node.name and not has_others(end.who[0], graph.nodes)
    left = ", and no thread is left that collects them" if is_alone else ""
    ago = _ago(made.last_unix_nano, at)
    ended = f"{total:,} have ended, the last one ({made.last}) {ago} ago, and none has begun since"
    return f"No trajectory of {wording.names([name for name, _ in makers], _MOST_NAMED)} is open{left}: {ended}"


def _ago(then: int, at: int) -> str:
    return wording.seconds(max(0, at - then) / _NS)


def _locks(node: Node) -> list[str]:
    """Return where other threads of a process wait for a lock: likely for each other's."""
    threads = node.seen.threads[1:] if node.seen is not None else ()
    activities = (thread_activity(thread, thread.kernel) for thread in threads if thread != node.thread)
    return [activity.place for activity in activities if activity.kind == "lock" and activity.place]


def _apart(nodes: Sequence[Node]) -> str:
    """Return who is in which collective, the fewest first."""
    places: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        calls = calls_of(node) or [f"{node.activity.call}{at_place(node)}"]
        step = f"step {node.now.step}" if node.now is not None and node.now.step is not None else ""
        details = ", ".join(filter(None, (step, node.call[-1])))
        places[f"in {' and '.join(calls)}{f' ({details})' if details else ''}"].append(node)
    ordered = sorted(places.items(), key=lambda item: len(item[1]))
    return "; ".join(
        f"{wording.names([node.name for node in of_place], _MOST_NAMED)} {place}" for place, of_place in ordered
    )


def evidence_of(nodes: Iterable[Node], machines: Sequence[MachineSeen], nows: Sequence[Now], at: int) -> Iterable[str]:
    """Yield the facts that a verdict rests on."""
    if quiet := silent(reports_of(nows), at):
        yield how_silent(quiet)
    for node in list(nodes)[:_MOST_NAMED]:
        seen = node.seen
        if node.now is not None:
            step = "outside of any step" if node.now.step is None else f"in step {node.now.step:,}"
            yield f"{node.name}: {step}, recorded something last {_ago(node.now.last_unix_nano, at)} ago"
            if unusual := node.unusual(at):
                yield f"{node.name}: {node.takes} takes {unusual}"
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
        if is_full(disk.free, disk.size, disk.free_files):
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


def _in_phase(node: Node) -> str:
    return f" in {node.phase}" if node.phase else ""


def for_time(node: Node, at: int) -> str:
    """Return for how long a node has been where it is, or how long ago it ended."""
    if node.now is None:
        return ""
    ago = wording.seconds(node.age(at))
    return f", {ago} ago" if node.activity.kind == "zombie" else f", for {ago}"


def at_place(node: Node) -> str:
    """Return at which line a node is, and which other file called that."""
    thread = node.thread or (node.seen.threads[0] if node.seen is not None and node.seen.threads else None)
    is_there = thread is not None and place_of(thread.frames) == node.activity.place
    caller = caller_of(thread.frames) if thread is not None and is_there else ""
    called = f" called from {caller}" if caller else ""
    return f" at {node.activity.place}{called}" if node.activity.place else ""
