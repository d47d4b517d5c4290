"""Whether every query has the same values in all ways, at a moment when all runs stand still."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from tests.dashboards.queries import Query, asked, every_query, has_windows, without_windows
from tests.prometheus import Prometheus
from tests.servers.running import A_WHILE
from tests.servers.ways import BATCH_S, COLLECTOR_S, INTERVAL_S

OF_THE_WAY = re.compile(r"instance|job|host_name|service_\w+|telemetry_sdk_\w+|otel_scope_\w+")
"""Labels that say by which way a series came; all others must be the same."""
_RATIO = "_ratio"
ELAPSED = {
    "rl_phase_open_time_seconds": "the age of the phase in which `stalled` hangs",
    "rl_telemetry_lag_seconds": "the time since the exporter of `telemetry` delivered everything",
    "rl_telemetry_heartbeat_timestamp_seconds": "the age of the agents' heartbeats",
}
"""Times that pass while nothing happens."""
TOTALS_S = 2
ELAPSED_MAY_DIFFER_S = TOTALS_S + INTERVAL_S + BATCH_S + COLLECTOR_S
"""The greatest age of totals in an agent, of its last export, in a batch, and of the last page of a Collector."""
_ADDITION = 1e-9
"""Relative difference of sums whose terms are added in different orders."""
WINDOW_S = 20
"""Seconds of which one must be the same in two ways."""
_STOPPED = "orphan"
Comparison = Literal["values", "totals", "elapsed"]
_Series = dict[tuple[tuple[str, str], ...], list[float]]
"""Values by labels; several series can differ only in what names the way."""


class Difference(NamedTuple):
    """A query that a way answers otherwise than a Prometheus that scrapes agents, for a run."""

    query: Query
    run: str
    way: str
    scraped: _Series
    other: _Series


Allowed = Callable[[Difference], bool]


def comparison(query: Query) -> Comparison:
    """Return how the values of a query are compared."""
    if any(name in query.expression for name in ELAPSED):
        return "elapsed"
    return "totals" if has_windows(query) else "values"


def of_rates(scraped: Prometheus, ways: Mapping[str, Prometheus], allowed: Allowed) -> list[Difference]:
    """Return the queries with windows that do not have the same series, while the runs go on.

    The agent of `orphan` is stopped then: ways that do not scrape it keep its last values for a while.
    """
    asking = {query: asked(query.expression, ".*") for query in every_query() if has_windows(query)}
    since = int(time.time()) - WINDOW_S
    found = _differences(
        asking, scraped, ways, since, lambda _: _same_series, lambda one: one.run == _STOPPED or allowed(one)
    )
    return [one for one in found if one.run != _STOPPED]


def of_values(scraped: Prometheus, ways: Mapping[str, Prometheus], allowed: Allowed) -> list[Difference]:
    """Return the queries that do not have the same values at any second from now on, while the runs stand still."""

    def same(query: Query) -> Callable[[_Series, _Series], bool]:
        return _elapsed_alike if comparison(query) == "elapsed" else _equal

    asking = {query: asked(without_windows(query.expression), ".*") for query in every_query()}
    return _differences(asking, scraped, ways, int(time.time()), same, allowed)


def _differences(
    asking: Mapping[Query, str],
    scraped: Prometheus,
    ways: Mapping[str, Prometheus],
    since: int,
    same: Callable[[Query], Callable[[_Series, _Series], bool]],
    allowed: Allowed,
) -> list[Difference]:
    """Return differences that are allowed, and those that a busy machine does not explain any more."""
    until = time.monotonic() + A_WHILE
    differences: dict[Query, list[Difference]] = {}
    open_ = list(asking)
    while open_ and time.monotonic() < until:
        time.sleep(INTERVAL_S)
        now = int(time.time())
        seconds = range(max(since, now - WINDOW_S), now + 1)
        differences |= {query: _of_query(query, asking[query], scraped, ways, seconds, same(query)) for query in open_}
        open_ = [query for query in open_ if not all(map(allowed, differences[query]))]
    return list(itertools.chain.from_iterable(differences.values()))


def _of_query(
    query: Query,
    expression: str,
    scraped: Prometheus,
    ways: Mapping[str, Prometheus],
    seconds: range,
    same: Callable[[_Series, _Series], bool],
) -> list[Difference]:
    found = []
    told = _told(scraped, expression, seconds)
    for way, server in ways.items():
        others = _told(server, expression, seconds)
        for run in sorted({*told, *others}):
            known, other = told[run], others[run]  # without seconds in which a busy machine was not scraped
            moments = [at for at in seconds if known[at]] or seconds
            if not any(same(known[at], other[at]) for at in moments):
                found.append(Difference(query, run, way, known[moments[-1]], other[moments[-1]]))
    return found


def _told(server: Prometheus, expression: str, seconds: range) -> defaultdict[str, defaultdict[int, _Series]]:
    """Return what a query has at each second, by run; without a run, for all of them."""
    told: defaultdict[str, defaultdict[int, _Series]] = defaultdict(lambda: defaultdict(dict))
    for labels, values in server.over(expression, seconds[0], seconds[-1]):
        left = {name: value for name, value in labels.items() if not OF_THE_WAY.fullmatch(name)}
        if "__name__" in left:
            left["__name__"] = left["__name__"].removesuffix(_RATIO)
        key = tuple(sorted(left.items()))
        for at, value in values.items():
            told[labels.get("rl_run_id", "")][at].setdefault(key, []).append(value)
    return told


def _same_series(scraped: _Series, other: _Series) -> bool:
    return {labels: len(values) for labels, values in scraped.items()} == {k: len(v) for k, v in other.items()}


def _equal(scraped: _Series, other: _Series) -> bool:
    return _alike(
        scraped, other, lambda a, b: math.isclose(a, b, rel_tol=_ADDITION) or (math.isnan(a) and math.isnan(b))
    )


def _elapsed_alike(scraped: _Series, other: _Series) -> bool:
    return _alike(scraped, other, lambda a, b: abs(a - b) <= ELAPSED_MAY_DIFFER_S)


def _alike(scraped: _Series, other: _Series, same: Callable[[float, float], bool]) -> bool:
    return _same_series(scraped, other) and all(
        same(*pair)
        for labels, values in scraped.items()
        for pair in zip(sorted(values), sorted(other[labels]), strict=True)
    )
