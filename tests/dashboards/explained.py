"""Why some queries have other values in some ways than in a Prometheus that scrapes agents."""

from __future__ import annotations

from typing import NamedTuple

from tests.dashboards.comparison import Difference


class Explanation(NamedTuple):
    """Why the queries of some panels differ."""

    why: str
    panels: frozenset[str]

    def explains(self, difference: Difference) -> bool:
        """Return whether this is why."""
        return f"{difference.query.board}/{difference.query.panel}" in self.panels


EXPLANATIONS = (
    Explanation(
        "Prometheus measures its own scrapes of agents; otherwise there are none.",
        frozenset({"telemetry/Series", "telemetry/Scrapes"}),
    ),
)
"""All reasons; each is needed."""


def number(difference: Difference) -> int:
    """Return the number of the explanation of a difference, from 1 on; 0 if there is none."""
    return next((n for n, one in enumerate(EXPLANATIONS, 1) if one.explains(difference)), 0)
