"""One verdict over the evidence: the end of the waits, which is the cause, and those who wait because of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.autopsy.causes import KINDS
from otel_rl.autopsy.ends import WaitEnd, ends_of
from otel_rl.autopsy.graph import graph_of
from otel_rl.autopsy.sentences import at_place, evidence_of, for_time, sentence_of
from otel_rl.recorder.archive.autopsies import Verdict
from otel_rl.recorder.archive.reports import report_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.order import strength
from otel_rl.recorder.facts.standing import lives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.autopsy.evidence import MachineSeen
    from otel_rl.autopsy.graph import Graph
    from otel_rl.autopsy.nodes import Node
    from otel_rl.recorder.archive.now import Now
    from otel_rl.recorder.facts.states import Sure

_MOST_NAMED = 4


class _Cause(NamedTuple):
    end: WaitEnd
    waiters: frozenset[str]


def verdict_of(machines: Sequence[MachineSeen], nows: Sequence[Now], at: int, *, is_suspected: bool = False) -> Verdict:
    """Return why a run does not go on, or that nothing is overdue.

    Before anything is overdue, the likeliest cause is named if a rank takes far longer than it usually does: somebody
    asks then.

    Args:
        machines: The evidence of each machine.
        nows: What the agents of the run wrote last.
        at: The time in Unix nanoseconds.
        is_suspected: If true, somebody has reason to believe that the run hangs.
    """
    graph = graph_of(machines, nows)
    live = [now for now in nows if lives(report_of(now), at)]
    is_late = is_suspected or any(stall.kind != "slow" for now in live for stall in now.stalled)
    vain = {wait.cause for now in live for wait in now.waits if wait.cause}
    # A late rank that moves is slow, and works for nobody who waits: that is a fact of the agent, and not a cause.
    is_slow = all(stall.kind == "slow" for now in live for stall in now.stalled)
    causes = [each for each in _causes(graph, machines) if not (is_slow and _is_only_slow(each, graph))]
    serious = [each for each in causes if is_late or vain or (_sure(each) == "certain" and each.waiters)]
    is_early = not serious
    if is_early:
        serious = [each for each in causes if _unusual(each, graph, at) and not _works(each, graph)]
    if not serious:
        return _well(graph, at, is_suspected=is_suspected)
    sure: dict[str, Sure] = {kind: "certain" if kind in vain else KINDS[kind].sure for kind in KINDS}
    places = {kind: place for place, kind in enumerate(KINDS)}
    cause = min(
        serious,
        key=lambda each: (
            strength(sure[each.end.kind], each.end.by),
            not any(graph.nodes[key].is_rank for key in (*each.waiters, *each.end.who)),
            places[each.end.kind],
            -len(each.waiters),
        ),
    )
    return _verdict(cause, sure[cause.end.kind], graph, machines, nows, at, is_early=is_early)


def _verdict(
    cause: _Cause,
    sure: Sure,
    graph: Graph,
    machines: Sequence[MachineSeen],
    nows: Sequence[Now],
    at: int,
    *,
    is_early: bool,
) -> Verdict:
    nodes = [graph.nodes[key] for key in cause.end.who]
    waiters = [graph.nodes[key] for key in sorted(cause.waiters)]
    sentence = sentence_of(cause.end, waiters, graph, at)
    if is_early:
        sure = "possible" if sure == "likely" else sure
        sentence = f"{sentence} {_unusual(cause, graph, at)}"
    first = nodes[0]
    advice = KINDS[cause.end.kind].advice
    return Verdict(
        kind=cause.end.kind,
        sentence=sentence,
        who=tuple(node.name for node in nodes),
        sure=sure,
        consequences=tuple(f"{node.name} {node.activity.text}{at_place(node)}" for node in waiters),
        evidence=tuple(evidence_of(nodes, machines, nows, at)),
        advice=advice.format(pid=first.seen.pid if first.seen else "PID", host=first.host or "its machine"),
    )


def _sure(cause: _Cause) -> Sure:
    return KINDS[cause.end.kind].sure


def _unusual(cause: _Cause, graph: Graph, at: int) -> str:
    """Return how unusual the time of a rank is that a cause holds up, as a sentence; empty if it is not."""
    nodes = [graph.nodes[key] for key in (*sorted(cause.waiters), *cause.end.who)]
    known = ((node, node.unusual(at)) for node in nodes)
    return next((f"{wording.capitalized(node.takes)} takes {how}." for node, how in known if how), "")


def _is_only_slow(cause: _Cause, graph: Graph) -> bool:
    """Return whether the cause is a rank that makes progress of its own, and for which nobody waits."""
    seen = graph.nodes[cause.end.who[0]].seen
    return _works(cause, graph) and not cause.waiters and seen is not None and seen.moves


def _works(cause: _Cause, graph: Graph) -> bool:
    """Return whether the cause is a rank that works, and may go on at any moment."""
    node = graph.nodes[cause.end.who[0]]
    return cause.end.kind == "busy" and node.is_rank


def _causes(graph: Graph, machines: Sequence[MachineSeen]) -> list[_Cause]:
    """Return the ends of all waits that begin at a process that records and is not idle."""
    ends: dict[tuple[str, tuple[str, ...]], WaitEnd] = {}
    waiters: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for key, node in graph.nodes.items():
        if not node.records or node.thread is not None or node.seen is None or node.is_idle:
            continue
        reached = [*ends_of(key, graph, machines)]
        if node.activity.kind == "zombie":
            reached.append(WaitEnd("died", (key,)))
        for end in reached:
            ends.setdefault((end.kind, end.who), end)
            waiters[end.kind, end.who] |= {key} - set(end.who)
    return [_Cause(ends[key], frozenset(keys)) for key, keys in waiters.items()]


def _well(graph: Graph, at: int, *, is_suspected: bool) -> Verdict:
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
        sentence=f"Nothing is overdue: {count}{where}{doing}.{_but_unusual(living, at)}",
        sure="likely",
        advice=""
        if is_suspected
        else "If it hangs all the same, add --cause hangs: then the likeliest cause is named.",
        evidence=tuple(_does(node, at) for node in living[:_MOST_NAMED]),
    )


def _but_unusual(nodes: Sequence[Node], at: int) -> str:
    """Return how unusual the time of a rank is that works, as a sentence; empty if it is not."""
    return next(
        (
            f" {wording.capitalized(node.name)} {node.activity.text}{at_place(node)}: {node.takes} takes {how}."
            for node in nodes
            if (how := node.unusual(at))
        ),
        "",
    )


def _does(node: Node, at: int) -> str:
    unusual = node.unusual(at)
    does = f"{node.name} {node.activity.text}{at_place(node)}{for_time(node, at)}"
    return f"{does}, {unusual}" if unusual else does
