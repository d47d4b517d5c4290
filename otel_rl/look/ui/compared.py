"""How runs differ from a baseline, as `otel-rl compare` says it: `GET compared`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.insight.compare.columns import compare_each
from otel_rl.look.insight.compare.texts import method_of, metrics_of, phases_of
from otel_rl.look.reader.runs import open_run
from otel_rl.recorder.otlp.answers import MALFORMED, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.ui.overlay import OverlaidRun

MOST_COMPARED = 10
"""Runs of one comparison: each pair is tested, which takes up to a second."""


class TextTable(msgspec.Struct, frozen=True):
    """A table of texts: its titles and its lines."""

    titles: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


class ComparedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison in the words of all its screens."""

    base: str  # key of the baseline
    best: tuple[str, ...] = ()  # which of the runs is the best, in the words of `ls --group`
    refused: str = ""  # why the runs cannot be compared; empty if they can
    steps: tuple[int, int] = (0, 0)  # the first and the last step that were compared
    sentences: tuple[str, ...] = ()  # how the others differ, with intervals, the most important first
    metrics: TextTable | None = None
    phases: TextTable | None = None
    changes: tuple[str, ...] = ()  # what differs in commit, packages, machines and hyperparameters
    method: tuple[str, ...] = ()  # how they were compared


def compared(runs: Sequence[OverlaidRun], baseline: str, best: tuple[str, ...] = ()) -> ComparedRuns:
    """Return how runs differ from one of them, the first by default; `best` is said with it.

    Raises:
        Refusal: There are too many runs.
    """
    if len(runs) > MOST_COMPARED:
        raise Refusal(MALFORMED, f"at most {MOST_COMPARED} runs are compared")
    base = next((run for run in runs if run.key == baseline), runs[0] if runs else None)
    if base is None or len(runs) < 2:
        return ComparedRuns(base=base.key if base else "", best=best, refused="one run is not compared with itself")
    others = [run for run in runs if run is not base]
    try:
        found = compare_each(open_run(base.path), [open_run(run.path) for run in others])
    except ValueError as error:
        return ComparedRuns(base=base.key, best=best, refused=str(error))
    return ComparedRuns(
        base=base.key,
        best=best,
        steps=(found.first, found.last),
        sentences=found.sentences,
        metrics=_table(*metrics_of(found)),
        phases=_table(*phases_of(found)),
        changes=found.changes,
        method=tuple(method_of(found)),
    )


def _table(titles: tuple[str, ...], lines: list[tuple[str, ...]]) -> TextTable:
    return TextTable(titles, tuple(lines))
