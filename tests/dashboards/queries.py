"""Every query of every dashboard, as Grafana asks it, and as it is asked of runs that stand still."""

from __future__ import annotations

import re
from typing import NamedTuple

from dashboards import boards, variables

_GRAFANA = {
    "$__rate_interval": "15s",
    "$__range": "60s",
    "$__interval": "15s",
    "$attempt": ".*",
    "$framework": ".*",
    "$role": ".*",
    "$rank": ".*",
    "$logged": ".*",
    "$series": "rl_step_current",
}
_WINDOW = re.compile(r"\b(?:rate|increase|\w+_over_time)\(([^\[\]]*)\[[^\]]*\]\)")
_OF_ANNOTATIONS = "max_over_time(({})[90s:1s])"


class Query(NamedTuple):
    """A query of a dashboard: of which one, of which panel, and what the panel needs."""

    board: str
    panel: str
    needs: str
    expression: str


def every_query() -> list[Query]:
    """Return the queries of all panels, variables and annotations."""
    found = [
        Query(name, panel.title, panel.needs, expression)
        for name, board in boards.boards().items()
        for row in board.rows
        for panel in row.panels
        for expression in boards.queries(panel)
    ]
    more = boards.boards()["explorer"].variables
    found += [Query("variables", name, "", expression) for name, expression in variables.queries(more).items()]
    return found + [
        Query("annotations", name, "", _OF_ANNOTATIONS.format(expression))
        for name, expression in variables.annotation_queries().items()
    ]


def asked(expression: str, run: str) -> str:
    """Return a query as Grafana asks it, with its variables replaced."""
    for name, value in {"$run": run, **_GRAFANA}.items():
        expression = re.sub(re.escape(name) + r"\b", lambda _, value=value: value, expression)  # type: ignore[misc]
    return expression


def without_windows(expression: str) -> str:
    """Return a query with totals in place of rates, and latest values in place of means over a time."""
    before, after = _OF_ANNOTATIONS.split("{}")
    if expression.startswith(before):
        expression = expression.removeprefix(before).removesuffix(after)
    return _WINDOW.sub(r"(\1)", expression)


def has_windows(query: Query) -> bool:
    """Return whether the values of a query depend on when samples were taken."""
    return without_windows(query.expression) != query.expression
