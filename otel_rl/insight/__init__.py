"""The facts of a run: its summary, its findings, where its time went. Pure functions over the reader of the archive.

Screens import it: they show these facts, and conclude nothing themselves.
"""

from __future__ import annotations

from otel_rl.insight.conclude import facts_of
from otel_rl.insight.facts import Evidence, Facts, Finding, PhaseShare, Summary
from otel_rl.semconv.phase_categories import CATEGORIES, category_of

__all__ = ["CATEGORIES", "Evidence", "Facts", "Finding", "PhaseShare", "Summary", "category_of", "facts_of"]
