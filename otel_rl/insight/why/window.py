"""The spans and the consumed trajectories around a step: who worked, on what, from when to when."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.archive.valid import literal
from otel_rl.insight.recorded import PHASE
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from otel_rl.archive.reader import RunReader
    from otel_rl.semconv.phase_categories import Category

WorkKind = Literal["phase", "trajectory", "model", "tool", "environment", "verifier", "request", "span", "none"]
"""The kind of work: a phase, a trajectory outside of its parts, a part of it, a request to another program, another
span, or nothing that was recorded."""
PARENT_IS_STEP, NO_PARENT = -2, -1
"""The parent of a span that is directly in the span of the step, and of one whose parent is not known."""

_MOST_BEFORE = 4
"""Times of the step before it in which trajectories are looked at."""
_BEFORE_FIRST = 4
"""The part of the time of a step, as a divisor, before the first trajectory in which there is what let it begin."""
_PART = f"{semconv.SPAN_TRAJECTORY}."
_KIND = f"""CASE WHEN name IN ('{semconv.SPAN_TRAJECTORY}', '{semconv.SPAN_ROLLOUT}') THEN 'trajectory'
    WHEN starts_with(name, '{_PART}') THEN name[{len(_PART) + 1}:] WHEN phase IS NOT NULL AND {PHASE} THEN 'phase'
    WHEN resource IS NOT NULL THEN 'request' ELSE 'span' END"""
_TITLE = f"""CASE WHEN phase IS NOT NULL AND {PHASE} THEN phase WHEN starts_with(name, '{_PART}') THEN
    coalesce(attributes ->> '$."{semconv.GEN_AI_TOOL_NAME}"', attributes ->> '$."{semconv.TRAJECTORY_PART_NAME}"', '')
    ELSE name END"""


class Work(NamedTuple):
    """What is done: its kind, and its name, such as that of the phase or of the tool."""

    kind: WorkKind
    name: str

    @property
    def category(self) -> Category:
        """The category of a phase; `other` for other work."""
        return category_of(self.name) if self.kind == "phase" else "other"


NOTHING = Work("none", "")
"""No recorded work: time outside of any phase, or between trajectories."""


class Who(NamedTuple):
    """A process of the run, or another program that sent spans; `rank` is -1 if it is unknown."""

    role: str
    rank: int
    resource: str

    @property
    def is_trainer(self) -> bool:
        """Whether it is a rank of the trainer."""
        return not self.role and not self.resource and self.rank >= 0


class Doing(NamedTuple):
    """A span: who did what, from when to when, in nanoseconds; the parent is its place in the window."""

    work: Work
    who: Who
    began: int
    ended: int
    parent: int
    step: int


class Taken(NamedTuple):
    """Trajectories that a rank took in a step at once: their places in the window."""

    step: int
    rank: int
    at: int
    trajectories: tuple[int, ...]


class Window(NamedTuple):
    """A step, or a part of it, with all spans that overlap it, and those since the begin of the trajectories it took."""

    step: int
    since: int
    began: int
    ended: int
    doings: list[Doing]
    taken: list[Taken]

    @property
    def seconds(self) -> float:
        """Its wall time."""
        return (self.ended - self.began) / 1e9

    def places(self) -> dict[Who, int]:
        """Return how many trajectories each process ran at once."""
        running: defaultdict[Who, list[int]] = defaultdict(list)
        most: defaultdict[Who, int] = defaultdict(int)
        for one in self.doings:  # in the order of their begins
            if one.work.kind == "trajectory":
                ends = running[one.who]
                while ends and ends[0] <= one.began:
                    heappop(ends)
                heappush(ends, one.ended)
                most[one.who] = max(most[one.who], len(ends))
        return most


def read_window(run: RunReader, step: int, began: int, ended: int) -> Window:
    """Return the spans that overlap a step, and those since the begin of the trajectories that it took."""
    since = _since(run, step, began, ended)
    found = run.sql(f"""
        SELECT hash(span_id) AS id, hash(parent_id) AS parent, {_KIND} AS kind, {_TITLE} AS title, name,
            coalesce(role, '') AS role, coalesce(rank, -1) AS rank, coalesce(resource, '') AS resource,
            coalesce(step, -1) AS step, start_unix_nano AS began, start_unix_nano + duration_ns AS ended
        FROM spans WHERE start_unix_nano < {ended} AND start_unix_nano + duration_ns > {since}
        ORDER BY began, ended DESC""")
    columns = [found[name] for name in found]
    ids, parents = (np.asarray(column, np.uint64) for column in columns[:2])
    kinds, titles, names, roles, ranks, resources, steps, starts, ends = (column.tolist() for column in columns[2:])
    whos = list(map(Who, roles, ranks, resources))
    works = list(map(Work, kinds, titles))
    loops = np.array([name == semconv.SPAN_LOOP for name in names], bool)
    kept = np.flatnonzero(~loops)
    places = _places_of(parents[kept], ids[kept])
    in_step = np.isin(parents[kept], ids[loops])
    of_parent = np.where(in_step, PARENT_IS_STEP, places).tolist()
    doings = [
        Doing(works[n], whos[n], starts[n], ends[n], parent, steps[n])
        for n, parent in zip(kept.tolist(), of_parent, strict=True)
    ]
    return Window(step, since, began, ended, doings, _taken(run, step, since, ids[kept]))


def _since(run: RunReader, step: int, began: int, ended: int) -> int:
    """Return when the first trajectory began that a step took, at most some times of a step before it."""
    found = run.sql(f"""SELECT coalesce(min(start_unix_nano), {began}) AS first FROM spans WHERE name = '{semconv.SPAN_TRAJECTORY}'
        AND start_unix_nano < {ended} AND span_id IN (SELECT span_id FROM trajectories WHERE step = {step})""")["first"]
    before = (ended - began) // _BEFORE_FIRST
    return min(began, max(int(found[0]) - before, began - _MOST_BEFORE * (ended - began)))


def _taken(run: RunReader, step: int, since: int, ids: NDArray[np.uint64]) -> list[Taken]:
    """Return the trajectories of steps since a time by the rank and the time that took them."""
    found = run.sql(f"""SELECT step, rank, time_unix_nano, hash(span_id) AS id FROM trajectories
        WHERE step <= {step} AND (step = {step} OR time_unix_nano >= {since}) AND span_id <> ''
        ORDER BY time_unix_nano, rank""")
    places = _places_of(np.asarray(found["id"], np.uint64), ids).tolist()
    groups: dict[tuple[int, int, int], list[int]] = {}
    whens = (found[name].tolist() for name in ("step", "rank", "time_unix_nano"))
    for *when, place in zip(*whens, places, strict=True):
        if place >= 0:
            groups.setdefault(tuple(when), []).append(place)
    return [Taken(*when, tuple(those)) for when, those in groups.items()]


def _places_of(wanted: NDArray[np.uint64], ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the place of each id; -1 if it is not there."""
    if not len(ids):
        return np.full(len(wanted), NO_PARENT, np.int64)
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    return np.where(ids[order[at]] == wanted, order[at], NO_PARENT)


def walls(run: RunReader, phase: str = "") -> list[tuple[int, int, int]]:
    """Return the number, the begin and the end of steps with a span, in their order; of a phase, if one is given."""
    of_phase = f"{PHASE} AND phase = {literal(phase)} AND role IS NULL AND rank IS NOT NULL"
    found = run.sql(f"""SELECT step, min(start_unix_nano) AS began, max(start_unix_nano + duration_ns) AS ended
        FROM spans WHERE step IS NOT NULL AND {of_phase if phase else f"name = '{semconv.SPAN_LOOP}'"}
        GROUP BY step ORDER BY step""")
    return list(zip(*(found[name].tolist() for name in found), strict=True))
