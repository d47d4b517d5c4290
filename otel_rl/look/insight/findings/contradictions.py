"""Facts that contradict each other, by the rules over the columns of the run."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from otel_rl.look.insight.contradictions.columns import Columns
from otel_rl.look.insight.contradictions.groups import CompletionGroup, CompletionGroups
from otel_rl.look.insight.contradictions.rules import contradictions_of, wanted
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.recorded import in_sample
from otel_rl.look.insight.troubles import of_metric
from otel_rl.look.reader.result import lines_of

if TYPE_CHECKING:
    from otel_rl.look.insight.contradictions.contradiction import Contradiction
    from otel_rl.look.insight.recorded import RecordedRun

_MOST_STEPS, _RANGES = 240, 4
"""Steps whose groups are looked at, and ranges of neighboring ones."""

_OF_GROUPS = """
    SELECT step, coalesce(group_id, prompt_id) AS name, coalesce(prompt_id, '') AS prompt, reward, advantage,
        CASE WHEN versions IS NOT NULL THEN tokens END AS tokens
    FROM trajectories WHERE outcome = 'trained' AND coalesce(group_id, prompt_id) IS NOT NULL AND {steps}
    ORDER BY step, name, rank, number"""


def contradictions(recorded: RecordedRun) -> list[Finding]:
    """Return what cannot be, with three rows each."""
    return [_finding(found) for found in contradictions_of(columns_of(recorded)).values()]


def columns_of(recorded: RecordedRun) -> Columns:
    """Return the columns of a run that its trainer logged, as the rules see them."""
    names = [name for name, is_measured in recorded.names.items() if not is_measured]
    recorded.load(wanted(names))  # at once: each query opens the files again
    return Columns(recorded.main, names, recorded.series, recorded.parameters, lambda: _groups(recorded))


def _groups(recorded: RecordedRun) -> CompletionGroups:
    if recorded.steps is None:
        return ()
    lines = recorded.run.sql(_OF_GROUPS.format(steps=in_sample(*recorded.steps[:2], _MOST_STEPS, _RANGES)))
    return tuple(
        CompletionGroup(step, name, members[0][2], *(_floats(members, at) for at in (3, 4, 5)))
        for (step, name), of_group in groupby(lines_of(lines), key=lambda line: (line[0], line[1]))
        for members in [list(of_group)]
    )


def _floats(members: list[tuple[object, ...]], at: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if line[at] is None else line[at] for line in members], np.float64)


def _finding(found: Contradiction) -> Finding:
    return Finding(
        kind="learning",
        severity=found.severity,
        sentence=found.sentence,
        advice=found.advice,
        sure=found.sure,
        evidence=Evidence(steps=found.steps, names=found.names, panel="curves" if found.names else "data"),
        subject=found.subject or of_metric(found.names[0]),
        covers=tuple(map(of_metric, found.covers)),
        also=("; ".join(found.rows) + ".",) if found.rows else (),
    )
