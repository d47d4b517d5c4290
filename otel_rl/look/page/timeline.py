"""The data of the timeline: machines, ranks, phases and trajectories of a whole run, small enough for one file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight import CATEGORIES, category_of
from otel_rl.look.page.timeline_columns import differences, encoded, zigzag
from otel_rl.look.page.timeline_lanes import Lane, lanes_by_level, lanes_of, slots_of
from otel_rl.look.page.timeline_open import with_open
from otel_rl.look.page.timeline_spans import SpanName, TimelineProcess, read_details, read_sample, read_spans
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.archive.now import read_now
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from otel_rl.look.page.timeline_spans import TimelineSpans
    from otel_rl.look.reader.runs import RunReader
    from otel_rl.semconv.phase_categories import Category

    Integers = NDArray[np.int64]

MOST_SPANS = 1_500_000
"""Spans of a timeline: about 8 MB of text."""
_TICK_NS = 10_000
"""Resolution of times, in nanoseconds: at one millisecond a pixel, 100 of them are a pixel."""
_ELSEWHERE = "other programs"
_MOST_DETAIL_CHARACTERS = 1_000_000


class _Track(NamedTuple):
    """The lanes of a process: its phases, its trajectories, or the requests of another program."""

    kind: str
    who: TimelineProcess
    lanes: list[Lane]
    hidden: int


def timeline_of(run: RunReader, *, most_spans: int = MOST_SPANS) -> dict[str, Any]:
    """Return the timeline of a run, in JSON's types; `timeline_read.js` reads it.

    Args:
        run: The run.
        most_spans: Spans that are kept. Of more, the longest of each name of each process in equal parts of the time.
    """
    spans, open_steps = with_open(read_spans(run, most_spans), read_now(run.place.path))
    attempts = _attempts(run)
    origin, last = _extent(spans, attempts)
    start = (spans.start - origin) // _TICK_NS
    duration = (spans.start + spans.duration - origin) // _TICK_NS - start
    spans = spans._replace(start=start, duration=duration, weight=np.maximum(duration, spans.weight // _TICK_NS))
    spans = spans.taken(np.lexsort((-spans.duration, spans.start, spans.who)))
    loops = np.isin(spans.what, [n for n, name in enumerate(spans.names) if name.name == semconv.SPAN_LOOP])
    levels = _levels(run, spans)
    tracks = sorted(_tracks(spans, loops, _hosts(run), levels), key=_place)
    steps = _steps(spans, loops, [(n, (a - origin) // _TICK_NS, (b - a) // _TICK_NS) for n, a, b in open_steps])
    lanes = [lane.spans for track in tracks for lane in track.lanes]
    order = np.concatenate([*lanes, np.empty(0, np.int64)])
    firsts = np.cumsum([0, *map(len, lanes)])[:-1]
    kept = spans.taken(order)
    labels, name = _labels(kept, program=_of_programs(spans))
    columns: dict[str, NDArray[Any]] = {
        # An empty lane at the end begins behind the last span, where there is no value to replace.
        "start": differences(kept.start, firsts[firsts < len(order)]),
        "duration": kept.duration,
        "step": zigzag(np.diff(kept.step, prepend=-1)),
        "name": name,
        "marks": kept.failed.astype(np.uint8) | (kept.is_open.astype(np.uint8) << 1),
    }
    if spans.thinned is not None:
        columns["more"] = kept.weight - kept.duration
    return {
        "version": 1,
        # A text, as in report.py: JavaScript would round it.
        "origin_ns": str(origin),
        "tick_ns": _TICK_NS,
        "ticks": (last - origin) // _TICK_NS + 1 if len(spans.start) else 0,
        "count": len(order),
        "thinned": _thinned(spans),
        "categories": list(CATEGORIES),
        "names": labels,
        "tracks": list(_described(tracks)),
        "spans": encoded(columns),
        "step_count": len(steps[0]),
        "steps": encoded(
            {
                "start": differences(steps[1], np.array([0][: len(steps[0])], np.int64)),
                "duration": steps[2],
                "step": zigzag(np.diff(steps[0], prepend=0)),
            }
        ),
        "attempts": [[attempt, (at - origin) // _TICK_NS] for attempt, at in attempts],
        "details": _details(run, kept.id),
    }


def _extent(spans: TimelineSpans, attempts: list[tuple[int, int]]) -> tuple[int, int]:
    """Return when the first process started, or the first span, and when the last span ended."""
    if not len(spans.start):
        return 0, 0
    return min([int(spans.start.min()), *(at for _, at in attempts)]), int((spans.start + spans.duration).max())


def _hosts(run: RunReader) -> dict[tuple[str, int], str]:
    """Return the machine of each process, in its last attempt."""
    attempts = run.attempts
    return {
        (role, int(rank)): host
        for role, rank, host in zip(attempts["role"], attempts["rank"], attempts["host"], strict=True)
    }


def _attempts(run: RunReader) -> list[tuple[int, int]]:
    attempts = run.attempts
    firsts: dict[int, int] = {}
    for attempt, started in zip(attempts["attempt"].tolist(), attempts["started_unix_nano"].tolist(), strict=True):
        firsts[attempt] = min(started, firsts.get(attempt, started))
    return sorted(firsts.items())


def _levels(run: RunReader, spans: TimelineSpans) -> Integers | None:
    """Return how many phases each span is inside of, if outer ones may have been left out."""
    if spans.thinned is None:
        return None
    usual = read_sample(run)
    of_names = [usual.get(name, int(name.name.startswith(f"{semconv.SPAN_TRAJECTORY}."))) for name in spans.names]
    return np.array(of_names, np.int64)[spans.what]


def _tracks(
    spans: TimelineSpans, loops: NDArray[np.bool_], hosts: dict[tuple[str, int], str], levels: Integers | None
) -> Iterator[_Track]:
    """Yield the tracks of all processes; the spans are in the order of processes and of their starts."""
    end = spans.start + spans.duration
    bounds = np.searchsorted(spans.who, np.arange(len(spans.processes) + 1))
    for number, who in enumerate(spans.processes):
        own = np.arange(bounds[number], bounds[number + 1])
        own = own[~loops[own]]
        place = who._replace(machine=hosts.get((who.role, who.rank), who.machine)) if who.rank is not None else who
        if who.resource:  # an inference server answers several requests at once
            lanes, hidden = lanes_of(spans.start, end, own)
            name, host = _program(who.resource)
            yield _Track("program", place._replace(role=name, machine=host), lanes, hidden)
            continue
        inside = spans.trace[own] != 0
        if not inside.all():
            yield _Track("process", place, *_of_phases(spans.start, end, own[~inside], levels))
        if inside.any():
            of_trajectories = own[inside]
            lanes, hidden = slots_of(spans.start, end, of_trajectories, spans.trace[of_trajectories])
            yield _Track("trajectories", place, lanes, hidden)


def _of_phases(start: Integers, end: Integers, own: Integers, levels: Integers | None) -> tuple[list[Lane], int]:
    return lanes_of(start, end, own) if levels is None else lanes_by_level(start, end, own, levels[own])


def _program(resource: str) -> tuple[str, str]:
    """Return the name of another program and its machine; it need not have said either."""
    attributes = decoded(resource)
    texts = attributes if isinstance(attributes, dict) else {}
    name, host = texts.get("service.name"), texts.get(semconv.HOST_NAME)
    return name if isinstance(name, str) else "another program", host if isinstance(host, str) else _ELSEWHERE


def _place(track: _Track) -> tuple[Any, ...]:
    """Return what tracks are sorted by: machine, role and rank; trainer ranks first, other programs last."""
    kinds = ("process", "trajectories", "program")
    who = track.who
    rank = (1 << 62) if who.rank is None else who.rank
    is_program = track.kind == "program"
    is_elsewhere = who.machine == _ELSEWHERE
    return (
        is_elsewhere,
        _natural(who.machine),
        is_program,
        _natural(who.role),
        rank,
        kinds.index(track.kind),
        who.resource,
    )


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key by which node2 comes before node10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(n % 2, int(part) if n % 2 else 0, part) for n, part in enumerate(parts) if part]


def _described(tracks: list[_Track]) -> Iterator[dict[str, Any]]:
    for kind, who, lanes, hidden in tracks:
        yield {
            "kind": kind,
            "machine": who.machine,
            "role": who.role,
            "rank": who.rank,
            "lanes": [[lane.slot, lane.level, len(lane.spans)] for lane in lanes],
            "hidden": hidden,
        }


def _steps(
    spans: TimelineSpans, loops: NDArray[np.bool_], still_open: list[tuple[int, int, int]]
) -> tuple[Integers, Integers, Integers]:
    """Return the numbers of steps, their starts and durations: of their root spans; if there are none, of phases."""
    chosen = np.flatnonzero(loops & (spans.step >= 0))
    if len(chosen):
        more = [open_step for open_step in still_open if open_step[0] not in set(spans.step[chosen].tolist())]
        known = spans.step[chosen], spans.start[chosen], spans.duration[chosen]
        every = (
            [np.append(column, added) for column, added in zip(known, zip(*more, strict=True), strict=True)]
            if more
            else known
        )
        order = np.argsort(every[1], kind="stable")
        return every[0][order], every[1][order], every[2][order]
    chosen = np.flatnonzero(spans.step >= 0)
    chosen = chosen[np.argsort(spans.step[chosen], kind="stable")]
    numbers, firsts = np.unique(spans.step[chosen], return_index=True)
    if not len(numbers):
        return numbers, numbers, numbers
    start = np.minimum.reduceat(spans.start[chosen], firsts)
    end = np.maximum.reduceat(spans.start[chosen] + spans.duration[chosen], firsts)
    order = np.argsort(start, kind="stable")
    return numbers[order], start[order], (end - start)[order]


def _of_programs(spans: TimelineSpans) -> set[int]:
    """Return the names that other programs alone use."""
    foreign = np.array([bool(who.resource) for who in spans.processes], np.bool_)
    if not foreign.any():
        return set()
    is_foreign = foreign[spans.who]
    return set(np.unique(spans.what[is_foreign]).tolist()) - set(np.unique(spans.what[~is_foreign]).tolist())


def _labels(spans: TimelineSpans, *, program: set[int]) -> tuple[list[tuple[str, Category]], NDArray[Any]]:
    """Return what spans are called, with their categories, and the place of each span in it: a byte, if it fits."""
    numbers: dict[tuple[str, Category], int] = {}
    used = set(np.unique(spans.what).tolist())
    places: list[int] = []
    for number, name in enumerate(spans.names):
        label, category = _label(name)
        if number in program and category == "other":  # an inference server
            category = "rollout"
        places.append(numbers.setdefault((label, category), len(numbers)) if number in used else 0)
    most = np.iinfo(np.uint8).max
    return list(numbers), np.array(places, np.int64 if len(numbers) > most else np.uint8)[spans.what]


def _label(what: SpanName) -> tuple[str, Category]:
    """Return the trainer's own name of a phase, with its part; of a trajectory, its kind of part."""
    if what.phase:
        stage = registry.stages().get(what.phase)
        own = f"rl.{stage}" if stage else what.phase
        category = category_of(what.phase)
        if not what.name.startswith(f"{own}."):
            return what.phase, category
        part = what.name.removeprefix(f"{own}.")
        of_part = category_of(part)
        return f"{what.phase}.{part}", category if of_part == "other" else of_part
    if what.name == semconv.SPAN_TRAJECTORY:
        return "trajectory", "rollout"
    if what.name == semconv.SPAN_ROLLOUT:
        return "rollout", "rollout"
    kind = what.name.removeprefix(f"{semconv.SPAN_TRAJECTORY}.")
    if kind != what.name:
        return (f"tool: {what.tool}" if what.tool else kind), "rollout" if kind == "model" else "reward"
    return what.name, category_of(what.name)


def _thinned(spans: TimelineSpans) -> dict[str, Any] | None:
    if spans.thinned is None:
        return None
    return {"recorded": spans.thinned.recorded, "kept": len(spans.start), "bin_ticks": spans.thinned.bin_ns / _TICK_NS}


def _details(run: RunReader, ids: NDArray[np.uint64]) -> dict[str, Any]:
    """Return error messages and attributes, each text once: the number of a span, and the places of its texts."""
    order = np.argsort(ids)
    details = read_details(run)
    keys = np.array([detail.id for detail in details], np.uint64)
    places = np.minimum(np.searchsorted(ids, keys, sorter=order), max(len(ids) - 1, 0))
    texts: dict[str, int] = {"": 0}
    of_spans: list[tuple[int, int, int]] = []
    characters = 0
    for detail, place in zip(details, places.tolist(), strict=True):
        if not len(order):
            break
        span = int(order[place])
        if int(ids[span]) != detail.id:
            continue
        characters += sum(len(text) for text in (detail.error, detail.attributes) if text not in texts) + 16
        if characters > _MOST_DETAIL_CHARACTERS:
            break
        error, attributes = (texts.setdefault(text, len(texts)) for text in (detail.error, detail.attributes))
        of_spans.append((span, error, attributes))
    return {"texts": list(texts), "spans": sorted(of_spans)}
