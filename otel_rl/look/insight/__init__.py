"""The facts of a run: its summary, its findings, where its time went. Pure functions over the reader of the archive.

Screens import it: they show these facts, and conclude nothing themselves.

In reading order: `facts` are the answers, `recorded` has the tables of a run, each read once, and `conclude` makes
facts of them: `state`, `phases`, and the `findings`. `series` and `shifts` are the
statistics, `changed` says what differs between two runs, and `owed` what processes wait for. `why`, `compare` and
`samples` answer other questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.facts import Evidence, Facts, Finding, PhaseShare, Summary
from otel_rl.semconv.phase_categories import CATEGORIES, category_of

if TYPE_CHECKING:
    from otel_rl.look.reader.runs import RunReader

__all__ = ["CATEGORIES", "Evidence", "Facts", "Finding", "PhaseShare", "Summary", "category_of", "facts_of"]


def facts_of(run: RunReader, *, at_unix_nano: int | None = None) -> Facts:
    """Return the facts of a run: its summary, its findings, where its time went, and its main metrics.

    Args:
        run: The reader, of `otel_rl.open_run`.
        at_unix_nano: The time by which "live" and "hung" are decided; now by default.
    """
    from otel_rl.look.insight.conclude import (
        facts_of as conclude,  # loads NumPy and DuckDB, which first screens do without
    )

    return conclude(run, at_unix_nano=at_unix_nano)
