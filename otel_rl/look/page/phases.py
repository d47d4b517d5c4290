"""Where the time of steps goes: phases of the trainer's ranks, stacked, and by how much each rank falls behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otel_rl.look.insight import CATEGORIES, category_of
from otel_rl.look.insight.delays import OF_RANKS, delays
from otel_rl.look.insight.own_times import IN_STEPS, own_ns, time_within
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.step_rows import WHOLE
from otel_rl.look.page.packed import packed, packed_steps

if TYPE_CHECKING:
    from otel_rl.look.page.steps import StepAxis
    from otel_rl.look.reader.runs import RunReader

_PHASE_VALUES = 400_000
"""Values of all phases and ranges of steps together."""
_MOST_PHASES = 14
_CELLS = 300_000
"""Cells of ranks and ranges of steps together."""
_MOST_RANKS = 1_024
_OF_RANKS = f"{IN_STEPS} AND rank IS NOT NULL AND role IS NULL AND {WHOLE}"
_SHARES = """
WITH phases AS (SELECT step, rank, phase, {own} AS own_ns FROM spans WHERE {of_ranks}),
    ranks AS (SELECT step, count(DISTINCT rank) AS ranks FROM phases GROUP BY step)
SELECT (step - {first}) // {every} AS place, phase, sum(own_ns / ranks)::DOUBLE / 1e9 AS seconds, max(ranks) AS ranks
FROM phases JOIN ranks USING (step) GROUP BY ALL
"""
_BEHIND = """
WITH delays AS ({delays}), behind AS (SELECT step, rank, sum(greatest(0, delay)) AS seconds FROM delays GROUP BY ALL)
SELECT (step - {first}) // {every} AS place, rank, max(seconds) AS seconds FROM behind GROUP BY ALL
"""


def phases_of(run: RunReader, steps: StepAxis, at_unix_nano: int) -> dict[str, Any]:
    """Return the own seconds of each phase, averaged over ranks and over the steps of a range.

    Args:
        run: The run.
        steps: The axis of the page.
        at_unix_nano: The time up to which a hang that goes on lasts.
    """
    if not len(steps.numbers):
        return {"phases": [], "every": 1}
    every = steps.every(_PHASE_VALUES // _MOST_PHASES)
    own = own_ns(run, _OF_RANKS)
    shares = run.sql(
        _SHARES.format(own=own, of_ranks=f"{_OF_RANKS} AND {steps.within}", first=steps.first, every=every)
    )
    places = (steps.numbers - steps.first) // every
    counted = np.bincount(places)
    held = np.flatnonzero(counted)
    has_phases = np.isin(steps.numbers, run.sql(f"SELECT DISTINCT step FROM spans WHERE {_OF_RANKS}")["step"])
    known, took = ~np.ma.getmaskarray(steps.seconds) & has_phases, steps.seconds.filled(0.0)
    total = np.bincount(places, took * known, len(counted))[held] / np.maximum(
        1, np.bincount(places, known, len(counted))[held]
    )
    names, owners = np.unique(shares["phase"].astype(str), return_inverse=True)
    table = np.zeros((len(names) + 1, len(counted)))
    table[owners, shares["place"]] = np.ma.getdata(shares["seconds"])
    for hang in RecordedRun(run, at_unix_nano).hung:
        for (step, phase), nanoseconds in time_within(run, _OF_RANKS, hang).items():
            if not steps.first <= step <= steps.last:
                continue
            place, seconds = (step - steps.first) // every, nanoseconds / 1e9 / max(shares["ranks"])
            if phase:
                table[np.searchsorted(names, phase), place] -= seconds
            table[-1, place] += seconds
    table = table[:, held] / np.maximum(1, np.bincount(places, has_phases, len(counted)))[held]
    order = sorted(range(len(names)), key=lambda place: -table[place].sum())
    kept, rest = order[:_MOST_PHASES], order[_MOST_PHASES:]
    kept.sort(key=lambda place: (CATEGORIES.index(category_of(str(names[place]))), -table[place].sum()))
    phases = [_phase(str(names[place]), category_of(str(names[place])), table[place]) for place in kept]
    if table[-1].sum() > 0:
        phases.append(_phase("hung", "hung", table[-1]))
    if rest:
        phases.append(_phase(f"{len(rest)} more phases", "other", table[rest].sum(axis=0)))
    outside = np.maximum(0.0, total - table.sum(axis=0))
    if outside.sum() > 0:
        phases.append(_phase("", "none", outside))
    return {"phases": phases, "steps": packed_steps(steps.first + held * every), "every": every}


def waiting_of(run: RunReader, steps: StepAxis) -> dict[str, Any]:
    """Return by how many seconds each rank fell behind in the worst step of each range."""
    if not len(steps.numbers):
        return {"ranks": []}
    ranks = run.sql(f"SELECT DISTINCT rank FROM spans WHERE {OF_RANKS} ORDER BY rank")["rank"]
    if len(ranks) < 2:
        return {"ranks": [int(rank) for rank in ranks]}
    shown = min(len(ranks), _MOST_RANKS)
    every = steps.every(_CELLS // shown)
    found = run.sql(_BEHIND.format(delays=delays(steps.within), first=steps.first, every=every))
    width = (steps.last - steps.first) // every + 1
    cells = np.full((len(ranks), width), np.nan)
    cells[np.searchsorted(ranks, found["rank"]), found["place"]] = np.ma.getdata(found["seconds"])
    worst = np.sort(np.argsort(-np.nansum(cells, axis=1), kind="stable")[:shown])
    return {
        "ranks": [int(rank) for rank in ranks[worst]],
        "of": len(ranks),
        "first": steps.first,
        "every": every,
        "width": width,
        "cells": packed(cells[worst].ravel(), "f4"),
    }


def _phase(name: str, category: str, seconds: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"name": name, "category": category, "seconds": packed(seconds, "f4")}
