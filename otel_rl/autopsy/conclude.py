"""An autopsy from its start to its files: the evidence of this machine, that of the others, and the verdict."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from otel_rl.archive.autopsies import FOLDER, Autopsy, StackGroup
from otel_rl.archive.now import read_now
from otel_rl.autopsy.activity import activity_of
from otel_rl.autopsy.collect import look
from otel_rl.autopsy.evidence import Machine
from otel_rl.autopsy.graph import graph_of
from otel_rl.autopsy.text import lines_of
from otel_rl.autopsy.verdict import verdict_of
from otel_rl.errors.sinks import file_name
from otel_rl.journal import modes
from otel_rl.journal.atomic_files import read_shown_json, write_atomically
from otel_rl.journal.own_files import check_own
from otel_rl.setup import directory as directories

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from otel_rl.archive.now import Now
    from otel_rl.autopsy.graph import Graph, Node

_TOGETHER_S, _WAIT_S, _POLL_S = 120.0, 10.0, 0.2
"""Seconds between the looks of machines that belong to one autopsy, and to wait for the others at most."""
_MOST_FRAMES, _MOST_GROUPS = 12, 64
_NS = 1_000_000_000
_LIBRARY = re.compile(r"\A.*/(?=(site-packages|dist-packages)/|python3\.\d+/)")
"""The way to a package, or to a module of the standard library, which a reader knows."""


def autopsy(run: Path, cause: str = "") -> Autopsy:
    """Look at a run on this machine, join what other machines have seen, and write what was found.

    Args:
        run: The run directory.
        cause: Why somebody believes that the run hangs; empty if nobody does.
    """
    with suppress(OSError, ValueError):
        modes.own_process(directories.read_manifest(directories.at(run)).agent.share)
    seen = look(run, cause)
    missing = list(seen.missing)
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seen.time_unix_nano / _NS))
    place = run / FOLDER
    try:
        check_own(run.resolve())
        modes.make_directory(place / name)
        write_atomically(place / name / f"{file_name(seen.host)}.json", msgspec.json.encode(seen))
    except OSError as error:
        missing.append(f"nothing is written: {error}")
    nows = read_now(run)
    machines = [seen, *_others(place, seen, nows, wait=bool(cause))]
    absent = _hosts(nows) - {one.host for one in machines}
    missing += [f"{host}: nobody has looked there; run there: otel-rl autopsy {run}" for host in sorted(absent)]
    found = conclude(run, machines, nows, time.time_ns(), cause)
    found = msgspec.structs.replace(found, missing=tuple(missing), file=str(place / f"{name}.txt"))
    try:
        text = "\n".join(line for _, line in lines_of(found))
        write_atomically(place / f"{name}.txt", f"{text}\n".encode())
        write_atomically(place / f"{name}.json", msgspec.json.encode(found))
    except OSError:
        return msgspec.structs.replace(found, file="")
    return found


def conclude(run: Path, machines: Sequence[Machine], nows: Sequence[Now], at: int, cause: str = "") -> Autopsy:
    """Return what the evidence says."""
    verdict = verdict_of(machines, nows, at, is_suspected=bool(cause))
    if verdict.kind == "ended":
        verdict = msgspec.structs.replace(verdict, advice=f"See how it ended: otel-rl top {shlex.quote(str(run))}")
    return Autopsy(
        run=str(run),
        time_unix_nano=at,
        cause=cause,
        hosts=tuple(one.host for one in machines),
        verdict=verdict,
        groups=_groups(graph_of(machines, nows), verdict.who),
    )


def _groups(graph: Graph, culprits: Sequence[str]) -> tuple[StackGroup, ...]:
    """Return the processes with stacks, those with equal ones together: the cause first, then the smallest group."""
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes.values():
        if node.seen is not None and (node.seen.threads or node.records):
            frames = node.seen.threads[0].frames[:_MOST_FRAMES] if node.seen.threads else ()
            key = (activity_of(node.seen).kind, *((frame.file, frame.function) for frame in frames))
            found.setdefault(key, []).append(node)
    ordered = sorted(found.values(), key=lambda nodes: (nodes[0].name not in culprits, len(nodes)))
    return tuple(_group(nodes) for nodes in ordered[:_MOST_GROUPS])


def _group(nodes: Sequence[Node]) -> StackGroup:
    first = nodes[0].seen
    assert first is not None
    lines = [
        f"{'' if not number else f'thread {number}: '}{_LIBRARY.sub('', frame.file)}:{frame.line} {frame.function}"
        f"{f'    {frame.source}' if frame.source else ''}"
        for number, thread in enumerate(first.threads)
        for frame in thread.frames[: _MOST_FRAMES if not number else 3]
    ]
    lines = lines or [f"no stacks: {first.missing}"]
    return StackGroup(who=tuple(node.name for node in nodes), does=nodes[0].activity.text, stack=tuple(lines[:48]))


def _others(place: Path, seen: Machine, nows: Sequence[Now], *, wait: bool) -> list[Machine]:
    """Return what other machines have seen within two minutes; wait for those that look at the same time."""
    deadline = time.monotonic() + (_WAIT_S if wait else 0.0)
    while True:
        found: dict[str, Machine] = {}
        for file in sorted(place.glob("*/*.json")):
            one = read_shown_json(file, Machine)
            if one is not None and one.host != seen.host and _is_together(one, seen):
                found[one.host] = one
        if time.monotonic() >= deadline or _hosts(nows) <= {*found, seen.host}:
            return list(found.values())
        time.sleep(_POLL_S)


def _is_together(one: Machine, other: Machine) -> bool:
    return abs(one.time_unix_nano - other.time_unix_nano) < _TOGETHER_S * _NS


def _hosts(nows: Sequence[Now]) -> set[str]:
    """Return the machines on which a process of the run lives."""
    return {one.host for now in nows for one in now.processes if one.outcome is None}
