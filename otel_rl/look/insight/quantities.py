"""The work of a step as it was measured: its samples, its updates, and how old the samples are."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from otel_rl.look.insight.recorded import PHASE
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import wording
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun

_TRAINED = "trajectories/trained"


def quantities(recorded: RecordedRun) -> dict[str, float]:
    """Return the quantities that are known, as medians over steps, by what they are called in sentences."""
    measured = {
        "samples of a step (measured)": recorded.series(_TRAINED).median,
        "training phases of a step (measured)": _updates(recorded),
        "staleness of samples (measured)": recorded.of_topic("staleness")[1].median,
    }
    return {name: wording.significant(value) for name, value in measured.items() if math.isfinite(value)}


def _updates(recorded: RecordedRun) -> float:
    """Return how many phases of training, such as optimizer steps, a rank has in a usual step; NaN without any."""
    counts = recorded.run.sql(f"""
        SELECT phase, median(n) AS n FROM (
            SELECT step, rank, phase, count(*) AS n FROM spans
            WHERE {PHASE} AND step IS NOT NULL AND role IS NULL AND rank IS NOT NULL GROUP BY ALL
        ) GROUP BY phase""")
    updates = Counter({phase: number for phase, number in lines_of(counts) if category_of(phase) == "training"})
    return float(sum(updates.values())) if updates else math.nan
