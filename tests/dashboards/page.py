"""The page of queries in the documentation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from tests.dashboards import comparison
from tests.dashboards.comparison import Difference
from tests.dashboards.explained import EXPLANATIONS, number
from tests.dashboards.proof import Watched
from tests.dashboards.queries import Query, every_query
from tests.dashboards.trainers import HARDWARE_S, PLAYS
from tests.servers import ways

MARK = "●"
EQUAL = "="
_HEAD = f"""# Which queries have data for which runs

Written by `WRITE_TABLES=1 pytest tests/dashboards/test_live.py`: a real Prometheus watches these runs, and is asked
every query of every panel, variable and annotation for each. `trl`, `verl` and `roll` log every name of their
framework; the others are small, and each has what its name says: two ranks, a slow one, one that is killed; a stalled
run and one that diverges; a GPU (NVML's library and torch's allocator are stand-ins); trajectories, queues and an
inference server's endpoint; an exporter that is unreachable. The agent of `orphan` is stopped (SIGSTOP), so that
Prometheus soon knows nothing of it.

## In which ways they have the same values

Three more Prometheus 3 get the same metrics while the first one scrapes the agents. The agents send OTLP to a Collector
with [metrics.yaml](../../deploy/collector/metrics.yaml), which exports in three ways:

- *OTLP*: to Prometheus' own OTLP receiver, with [otlp.yml](../../deploy/prometheus/otlp.yml)
- *Collector*: Prometheus scrapes the Collector, with [collector.yml](../../deploy/prometheus/collector.yml)
- *remote write*: to Prometheus' receiver of remote write

Then all trainers wait between two steps, the inference server's counters stop, and the agent of `orphan` continues.
The four servers are asked every query at the same times. `{EQUAL}` says that a way has the same series with the same
values as the Prometheus that scrapes the agents, for every run. A number is the reason of a difference, listed below.

- *values*: the query as it is. The hardware poller still measures every {HARDWARE_S} s, and each way has a new value at
  another moment. So the ways must agree at one of the last {comparison.WINDOW_S} s.
- *totals*: rates depend on when samples are taken. So the query is asked with totals in place of rates, and with the
  latest values in place of means over a window. While the runs go on, the query with its windows has the same series
  in all ways; only the series of `orphan` stay for five minutes in the ways that do not scrape its agent.
- *elapsed*: {", ".join(comparison.ELAPSED.values())}
  change while the runs stand still. They may differ by {comparison.ELAPSED_MAY_DIFFER_S} s, the sum of these times: the
  agent computes totals every {comparison.TOTALS_S} s, it exports them every {ways.INTERVAL_S} s, the Collector waits
  {ways.BATCH_S} s for a batch, and Prometheus scrapes the Collector every {ways.COLLECTOR_S} s.

Labels that name the way are left out: `instance`, `job`, `host_name`, `service_*`, `telemetry_sdk_*` and
`otel_scope_*`. So is the ending `_ratio` of names, which gauges with unit 1 have in all ways except scraping.

"""


def page(told: Watched, differences: Sequence[Difference]) -> str:
    """Return the page: which queries have data for which runs, and how they compare in the ways."""
    reasons = "".join(f"{n}. {one.why}\n" for n, one in enumerate(EXPLANATIONS, 1))
    return f"{_HEAD}{_table(told, differences)}\n## Why some differ\n\n{reasons}"


def without_marks(text: str, *, ways_too: bool) -> str:
    """Return the page without the runs that have data, and also without how the ways compare."""
    text = text.replace(MARK, "")
    return re.sub(r"(\| (?:values|totals|elapsed) \|).*", r"\1", text) if ways_too else text


def _table(told: Watched, differences: Sequence[Difference]) -> str:
    titles = ["dashboard", "panel", "query", *PLAYS, "compared", *ways.WAYS]
    lines = [titles, ["---"] * len(titles)]
    for (board, panel), queries in itertools.groupby(every_query(), key=lambda query: (query.board, query.panel)):
        for letter, query in zip("ABCDEFGH", queries, strict=False):
            marks = [MARK if told.series[query, run] else "" for run in PLAYS]
            compared = [comparison.comparison(query), *(_cell(query, way, differences) for way in ways.WAYS)]
            lines.append([board, panel, letter, *marks, *compared])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(query: Query, way: str, differences: Sequence[Difference]) -> str:
    found = {number(one) for one in differences if (one.query, one.way) == (query, way)}
    return ", ".join(map(str, sorted(found))) or EQUAL
