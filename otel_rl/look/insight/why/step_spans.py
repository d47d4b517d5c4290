"""The spans and the consumed trajectories around a step, as columns: who worked, on what, from when to when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.span_work import ENDED, KIND, TITLE, SpanWork
from otel_rl.look.reader.result import lines_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from otel_rl.look.reader.runs import RunReader

    Integers = NDArray[np.int64]

PARENT_IS_STEP, NO_PARENT = -2, -1
"""The parent of a span that is directly in the span of the step, and of one whose parent is not known."""

_MOST_BEFORE = 4
"""Times of the step before it in which trajectories are looked at."""
_BEFORE_FIRST = 4
"""The part of the time of a step, as a divisor, before the first trajectory in which there is what let it begin."""
_ROLE, _RANK, _RESOURCE = "coalesce(role, '')", "coalesce(rank, -1)", "coalesce(resource, '')"
_WHAT, _WHO = f"hash({KIND}, {TITLE})", f"hash({_ROLE}, {_RANK}, {_RESOURCE})"


class SpanProcess(NamedTuple):
    """A process of the run, or another program that sent spans; `rank` is -1 if it is unknown."""

    role: str
    rank: int
    resource: str

    @property
    def is_trainer(self) -> bool:
        """Whether it is a rank of the trainer."""
        return not self.role and not self.resource and self.rank >= 0


class TakenTrajectories(NamedTuple):
    """Trajectories that a rank took in a step at once: the places of their spans."""

    step: int
    rank: int
    at: int
    trajectories: tuple[int, ...]


class SpanColumns(NamedTuple):
    """Spans in the order of their begins; `what` and `who` are places in tables, `parent` is the place of a span."""

    began: Integers
    ended: Integers
    step: Integers
    what: Integers
    who: Integers
    parent: Integers


class StepWindow(NamedTuple):
    """A step, or a part of it, and all spans that overlap it, or the time since the first trajectory that it took."""

    step: int
    since: int
    began: int
    ended: int
    spans: SpanColumns
    works: list[SpanWork]
    whos: list[SpanProcess]
    taken: list[TakenTrajectories]

    @property
    def seconds(self) -> float:
        """Its wall time."""
        return (self.ended - self.began) / 1e9

    @property
    def are_trajectories(self) -> NDArray[np.bool_]:
        """Which spans are trajectories."""
        return np.array([work.kind == "trajectory" for work in self.works], bool)[self.spans.what]


def read_window(run: RunReader, step: int, began: int, ended: int) -> StepWindow:
    """Return the spans that overlap a step, and those since the begin of the trajectories that it took."""
    since = _since(run, step, began, ended)
    where = f"start_unix_nano < {ended} AND {ENDED} > {since} AND duration_ns >= 0"
    columns_of = run.sql(f"""
        SELECT start_unix_nano AS began, {ENDED} AS ended, coalesce(step, -1) AS step,
            {_WHAT} AS what, {_WHO} AS who, hash(parent_id) AS parent, hash(span_id) AS id,
            name = '{semconv.SPAN_LOOP}' AS is_loop
        FROM spans WHERE {where} ORDER BY began, ended DESC""")
    *columns, is_loop = (np.ma.getdata(columns_of[name]) for name in columns_of)
    works, whos = _names(run, where)
    loops = columns[6][is_loop]
    kept = ~is_loop & np.isin(columns[3], list(works)) & np.isin(columns[4], list(whos))  # the run may go on
    starts, ends, steps, what, who, parent, ids = (column[kept] for column in columns)
    places = np.where(np.isin(parent, loops), PARENT_IS_STEP, _places_of(parent, ids))
    spans = SpanColumns(starts, ends, steps, _codes(what, list(works)), _codes(who, list(whos)), places)
    return StepWindow(
        *(step, since, began, ended, spans, list(works.values()), list(whos.values())), _taken(run, step, since, ids)
    )


def _names(run: RunReader, where: str) -> tuple[dict[int, SpanWork], dict[int, SpanProcess]]:
    """Return the works and the processes of spans by their keys."""
    rows = run.sql(f"""
        SELECT {_WHAT} AS what, any_value({KIND}) AS kind, any_value({TITLE}) AS title, {_WHO} AS who,
            any_value({_ROLE}) AS role, any_value({_RANK}) AS rank, any_value({_RESOURCE}) AS resource
        FROM spans WHERE {where} GROUP BY what, who ORDER BY what, who""")
    works: dict[int, SpanWork] = {}
    whos: dict[int, SpanProcess] = {}
    for what, kind, title, who, *process in lines_of(rows):
        works.setdefault(what, SpanWork(kind, title))
        whos.setdefault(who, SpanProcess(*process))
    return works, whos


def _since(run: RunReader, step: int, began: int, ended: int) -> int:
    """Return when the first trajectory began that a step took, at most some times of a step before it."""
    result = run.sql(f"""SELECT coalesce(min(start_unix_nano), {ended}) AS first FROM spans
        WHERE name = '{semconv.SPAN_TRAJECTORY}' AND start_unix_nano < {ended}
            AND span_id IN (SELECT span_id FROM trajectories WHERE step = {step})""")
    first = int(result["first"][0])
    before = first - (ended - began) // _BEFORE_FIRST if first < began else began
    return min(began, max(before, began - _MOST_BEFORE * (ended - began)))


def _taken(run: RunReader, step: int, since: int, ids: NDArray[np.uint64]) -> list[TakenTrajectories]:
    """Return the trajectories of steps since a time by the rank and the time that took them."""
    rows = run.sql(f"""SELECT step, rank, time_unix_nano, hash(span_id) AS id FROM trajectories
        WHERE step <= {step} AND (step = {step} OR time_unix_nano >= {since}) AND span_id <> ''
        ORDER BY time_unix_nano, rank""")
    places = _places_of(np.ma.getdata(rows["id"]), ids).tolist()
    groups: dict[tuple[int, int, int], list[int]] = {}
    whens = (rows[name].tolist() for name in ("step", "rank", "time_unix_nano"))
    for *when, place in zip(*whens, places, strict=True):
        if place >= 0:
            groups.setdefault(tuple(when), []).append(place)
    return [TakenTrajectories(*when, tuple(places)) for when, places in groups.items()]


def _places_of(wanted: NDArray[np.uint64], ids: NDArray[np.uint64]) -> Integers:
    """Return the place of each id; -1 if it is not there."""
    if not len(ids):
        return np.full(len(wanted), NO_PARENT, np.int64)
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    return np.where(ids[order[at]] == wanted, order[at], NO_PARENT)


def _codes(keys: NDArray[np.uint64], known: list[int]) -> Integers:
    return _places_of(keys, np.array(known, np.uint64))
