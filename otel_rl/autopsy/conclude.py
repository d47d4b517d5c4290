"""An autopsy from its start to its files: the evidence of this machine, that of the others, and the verdict."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from otel_rl.autopsy.activity import activity_of
from otel_rl.autopsy.collect import look
from otel_rl.autopsy.evidence import MachineSeen
from otel_rl.autopsy.graph import graph_of
from otel_rl.autopsy.verdict import verdict_of
from otel_rl.recorder.archive.autopsies import FOLDER, Autopsy, StackGroup
from otel_rl.recorder.archive.autopsy_text import lines_of
from otel_rl.recorder.archive.now import read_now
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.errors.sinks import file_name
from otel_rl.recorder.files import modes
from otel_rl.recorder.files.atomic_files import read_shown_json
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.own_files import check_own

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from otel_rl.autopsy.graph import Graph
    from otel_rl.autopsy.nodes import Node
    from otel_rl.recorder.archive.now import Now

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
    place, evidence = run / FOLDER, f"{file_name(seen.host)}.json"
    if why := _written(place, place / name, {evidence: msgspec.json.encode(seen)}):
        missing.append(f"nothing is written: {why}")
    nows = read_now(run)
    machines = [seen, *_others(place, seen, nows, wait=bool(cause))]
    absent = _hosts(nows) - {machine.host for machine in machines}
    missing += [f"{host}: nobody has looked there; run there: otel-rl autopsy {run}" for host in sorted(absent)]
    concluded = conclude(run, machines, nows, time.time_ns(), cause)
    concluded = msgspec.structs.replace(concluded, missing=tuple(missing), file=str(place / f"{name}.txt"))
    text = "\n".join(line for _, line in lines_of(concluded))
    files = {f"{name}.txt": f"{text}\n".encode(), f"{name}.json": msgspec.json.encode(concluded)}
    is_written = not why and not _written(place, place, files)
    return concluded if is_written else msgspec.structs.replace(concluded, file="")


def _written(place: Path, folder: Path, files: Mapping[str, bytes]) -> str:
    """Write files into the folder of autopsies or one in it; return why it cannot be done, empty if it was."""
    try:
        check_own(place.parent.resolve())  # a folder of root in a user's run would be closed to that user's autopsies
        mode = modes.chosen().directory
        with OwnDirectory(place, mode, closes=True), OwnDirectory(folder, mode, closes=True) as opened:
            for name, content in files.items():
                opened.write(name, content)
    except OSError as error:
        return str(error)
    return ""


def conclude(run: Path, machines: Sequence[MachineSeen], nows: Sequence[Now], at: int, cause: str = "") -> Autopsy:
    """Return what the evidence says."""
    verdict = verdict_of(machines, nows, at, is_suspected=bool(cause))
    if verdict.kind == "ended":
        verdict = msgspec.structs.replace(verdict, advice=f"See how it ended: otel-rl top {shlex.quote(str(run))}")
    return Autopsy(
        run=str(run),
        time_unix_nano=at,
        cause=cause,
        hosts=tuple(machine.host for machine in machines),
        verdict=verdict,
        groups=_groups(graph_of(machines, nows), verdict.who),
    )


def _groups(graph: Graph, culprits: Sequence[str]) -> tuple[StackGroup, ...]:
    """Return the processes with stacks, those with equal ones together: the cause first, then the smallest group."""
    alike: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes.values():
        if node.thread is None and node.seen is not None and (node.seen.threads or node.records):
            frames = node.seen.threads[0].frames[:_MOST_FRAMES] if node.seen.threads else ()
            key = (activity_of(node.seen).kind, *((frame.file, frame.function) for frame in frames))
            alike.setdefault(key, []).append(node)
    ordered = sorted(alike.values(), key=lambda nodes: (nodes[0].name not in culprits, len(nodes)))
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


def _others(place: Path, seen: MachineSeen, nows: Sequence[Now], *, wait: bool) -> list[MachineSeen]:
    """Return what other machines have seen within two minutes; wait for those that look at the same time."""
    deadline = time.monotonic() + (_WAIT_S if wait else 0.0)
    while True:
        others: dict[str, MachineSeen] = {}
        for file in sorted(place.glob("*/*.json")):
            other = read_shown_json(file, MachineSeen, place)
            if other is not None and other.host != seen.host and _is_together(other, seen):
                others[other.host] = other
        if time.monotonic() >= deadline or _hosts(nows) <= {*others, seen.host}:
            return list(others.values())
        time.sleep(_POLL_S)


def _is_together(machine: MachineSeen, other: MachineSeen) -> bool:
    return abs(machine.time_unix_nano - other.time_unix_nano) < _TOGETHER_S * _NS


def _hosts(nows: Sequence[Now]) -> set[str]:
    """Return the machines on which a process of the run lives."""
    return {process.host for now in nows for process in now.processes if process.outcome is None}
