"""Where the time of steps goes: phases of the trainer's ranks, stacked, and by how much each rank falls behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otel_rl.insight import CATEGORIES, category_of
from otel_rl.insight.recorded import PHASE, middle_of
from otel_rl.view.page.packed import packed, packed_steps

if TYPE_CHECKING:
    from otel_rl.archive.reader import RunReader
    from otel_rl.view.page.steps import Steps

_PHASE_VALUES = 400_000
"""Values of all phases and ranges of steps together."""
_MOST_PHASES = 14
_CELLS = 300_000
"""Cells of ranks and ranges of steps together."""
_MOST_RANKS = 1_024
_OF_TRAINER = f"phase IS NOT NULL AND {PHASE} AND step IS NOT NULL AND rank IS NOT NULL AND role IS NULL"
_SHARES = f"""
WITH phases AS (SELECT step, rank, phase, span_id, parent_id, duration_ns FROM spans WHERE {_OF_TRAINER}),
    inside AS (SELECT parent_id AS span_id, sum(duration_ns) AS inner_ns FROM phases
               WHERE parent_id IN (SELECT span_id FROM phases) GROUP BY ALL),
    ranks AS (SELECT step, count(DISTINCT rank) AS ranks FROM phases GROUP BY step),
    own AS (SELECT step, phase, sum(duration_ns - coalesce(inner_ns, 0)) AS ns
            FROM phases LEFT JOIN inside USING (span_id) GROUP BY ALL)
SELECT (step - {{first}}) // {{every}} AS place, phase, sum(ns / ranks) / 1e9 AS seconds
FROM own JOIN ranks USING (step) GROUP BY ALL
"""
_BEHIND = f"""
WITH stays AS (
        SELECT step, phase, rank, min(start_unix_nano) AS entered, max(start_unix_nano + duration_ns) AS left_at
        FROM spans WHERE {_OF_TRAINER} GROUP BY ALL),
    counted AS (
        SELECT step, phase, rank, entered - min(entered) OVER own AS entered, left_at - min(entered) OVER own AS left_at
        FROM stays WINDOW own AS (PARTITION BY step, rank)),
    usual AS (
        SELECT step, phase, {middle_of("entered")} AS entered, {middle_of("left_at")} AS left_at
        FROM counted GROUP BY ALL HAVING count(*) > 1),
    behind AS (
        SELECT counted.step AS step, rank, sum(greatest(0, greatest(0, counted.left_at - usual.left_at)
            - greatest(0, counted.entered - usual.entered))) / 1e9 AS seconds
        FROM counted JOIN usual USING (step, phase) GROUP BY ALL)
SELECT (step - {{first}}) // {{every}} AS place, rank, max(seconds) AS seconds FROM behind GROUP BY ALL
"""
"""By how much a rank becomes later than the median of the ranks while it is in a phase, as stragglers are found."""


def phases_of(run: RunReader, steps: Steps) -> dict[str, Any]:
    """Return the seconds of each phase, averaged over ranks and over the steps of a range; parts inside count once."""
    if not len(steps.numbers):
        return {"phases": [], "every": 1}
    every = steps.every(_PHASE_VALUES // _MOST_PHASES)
    found = run.sql(_SHARES.format(first=steps.first, every=every))
    places = (steps.numbers - steps.first) // every
    counted = np.bincount(places)
    held = np.flatnonzero(counted)
    known, took = ~np.ma.getmaskarray(steps.seconds), steps.seconds.filled(0.0)
    total = np.bincount(places, took, len(counted))[held] / np.maximum(
        1, np.bincount(places, known, len(counted))[held]
    )
    names, owners = np.unique(found["phase"].astype(str), return_inverse=True)
    table = np.zeros((len(names) + 1, len(counted)))
    table[owners, found["place"]] = np.ma.getdata(found["seconds"])
    table = table[:, held] / counted[held]
    order = sorted(range(len(names)), key=lambda one: -table[one].sum())
    kept, rest = order[:_MOST_PHASES], order[_MOST_PHASES:]
    kept.sort(key=lambda one: (CATEGORIES.index(category_of(str(names[one]))), -table[one].sum()))
    phases = [_phase(str(names[one]), category_of(str(names[one])), table[one]) for one in kept]
    if rest:
        phases.append(_phase(f"{len(rest)} more phases", "other", table[rest].sum(axis=0)))
    outside = np.maximum(0.0, total - table.sum(axis=0))
    if outside.sum() > 0:
        phases.append(_phase("", "none", outside))
    return {"phases": phases, "steps": packed_steps(steps.first + held * every), "every": every}


def waiting_of(run: RunReader, steps: Steps) -> dict[str, Any]:
    """Return by how many seconds each rank fell behind in the worst step of each range."""
    if not len(steps.numbers):
        return {"ranks": []}
    ranks = run.sql(f"SELECT DISTINCT rank FROM spans WHERE {_OF_TRAINER} ORDER BY rank")["rank"]
    if len(ranks) < 2:
        return {"ranks": [int(rank) for rank in ranks]}
    shown = min(len(ranks), _MOST_RANKS)
    every = steps.every(_CELLS // shown)
    found = run.sql(_BEHIND.format(first=steps.first, every=every))
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
