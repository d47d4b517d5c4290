"""The cardinality that Prometheus reports for a run of 64 simulated ranks.

It needs `otelcol` and Prometheus 3 on PATH, which `.ci/servers` builds, and the extra `dev`. On request only.
"""

from __future__ import annotations

import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import simulated_cluster
from benchmarks.simulated_cluster import LOCAL, MACHINES, TOKEN
from benchmarks.tables import Cell, Table
from otel_rl.recorder.settings.tokens import following
from tests.prometheus import scraping

if TYPE_CHECKING:
    from tests.prometheus import Prometheus

_TOP, _STEPS = 12, 30


def measure() -> list[Table]:
    """Return the metrics and the labels with the most series or values, after 30 steps."""
    with (
        simulated_cluster.cluster(2 * _STEPS) as cluster,
        tempfile.TemporaryDirectory() as place,
        scraping(
            Path(place), *(f"127.0.0.1:{port}" for port in cluster.pages), token=following(TOKEN, "scrape")
        ) as prometheus,
    ):
        time.sleep(_STEPS * simulated_cluster.PERIOD_S)
        return _tables(prometheus, MACHINES * LOCAL)


def _tables(prometheus: Prometheus, ranks: int) -> list[Table]:
    status = _status(prometheus)
    total, targets = status["headStats"]["numSeries"], len(prometheus.query("up"))
    per_machine = sorted(value for _, value in prometheus.query('count by (instance) ({job="otel-rl"})'))
    rows: list[list[Cell]] = [
        [one["name"], one["value"], ", ".join(sorted(_varying(prometheus, one["name"])))]
        for one in status["seriesCountByMetricName"]
    ]
    labels: list[list[Cell]] = [[one["name"], one["value"]] for one in status["labelValueCountByLabelName"]]
    note = (
        f"`/api/v1/status/tsdb` of a Prometheus that scrapes {targets} machines with {ranks} ranks: {total:,} series, "
        f"{total / ranks:.0f} for each rank. The page of the head has {per_machine[-1]:.0f} series, that of another "
        f"machine {per_machine[0]:.0f} to {per_machine[-2]:.0f}, with the 5 that Prometheus adds for each target."
    )
    return [
        Table("Metrics with the most series", ["metric", "series", "labels that differ"], rows, note),
        Table("Labels with the most values", ["label", "values"], labels),
    ]


def _status(prometheus: Prometheus) -> Any:
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/status/tsdb?limit={_TOP}") as answer:
        return json.load(answer)["data"]


def _varying(prometheus: Prometheus, metric: str) -> set[str]:
    """Return the labels that have more than one value in the series of a metric."""
    values: dict[str, set[str]] = {}
    for labels, _ in prometheus.query(f'{{__name__="{metric}"}}'):
        for name, value in labels.items():
            values.setdefault(name, set()).add(value)
    return {name for name, found in values.items() if len(found) > 1}
