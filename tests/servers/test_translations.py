"""Which strategies of translating names to Prometheus' names the dashboards work with."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_rl
from tests.collector import wait_for
from tests.dashboards.queries import Query, asked, every_query, without_windows
from tests.dashboards.trainers import learning
from tests.prometheus import Prometheus, scraping
from tests.real_parts import needs_program
from tests.servers.running import A_WHILE, needs_prometheus_3
from tests.servers.ways import NOT_BY_REMOTE_WRITE, Ways, ways

pytestmark = [needs_prometheus_3, needs_program("otelcol"), pytest.mark.timeout(600), pytest.mark.slow]
WORKS = "UnderscoreEscapingWithSuffixes"
STRATEGIES = {
    WORKS: "rl_train_steps_total",
    "UnderscoreEscapingWithoutSuffixes": "rl_train_steps",
    "NoUTF8EscapingWithSuffixes": "rl.train.steps_total",
    "NoTranslation": "rl.train.steps",
}
"""All strategies of Prometheus and of the Collector's exporters, and the name that each gives to a counter."""
_STEPS = 5


def with_data(server: Prometheus) -> set[Query]:
    """Return the queries of the dashboards that have data for the run `one`; about scrapes, none is asked."""
    asking = {
        query: asked(without_windows(query.expression), "one")
        for query in every_query()
        if "scrape_" not in query.expression
    }
    return {query for query, expression in asking.items() if server.query(expression)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the default one, every query has data that has data of a scraped agent; with others, many do not."""
    monkeypatch.chdir(tmp_path)
    counter = f'{{__name__="{STRATEGIES[strategy]}"}} == {_STEPS}'
    with ways(tmp_path, strategy=strategy) as found, scraping(tmp_path, files="runs/.targets/*.json") as scraped:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        run = otel_rl.init(project="p", id="one", dialect="trl", exporters=["jsonl"], quiet=True, hardware=False)
        for n in range(_STEPS):
            with run.step(n), run.phase("_generate"):
                run.log(learning(n))
        wait_for(lambda: scraped.query(f"rl_train_steps_total == {_STEPS}"), "the agent is not scraped", A_WHILE)
        if strategy in NOT_BY_REMOTE_WRITE:
            del found.servers["remote write"]
        for server in found.servers.values():
            wait_for(lambda server=server: server.query(counter), f"{counter} does not come", A_WHILE)  # type: ignore[misc]
        if strategy == WORKS:
            wait_for(lambda: not any(_missing(scraped, found)), "queries have no data", A_WHILE)
        missing = _missing(scraped, found)
        run.finish(30)

    assert all(missing) == (strategy != WORKS)


def _missing(scraped: Prometheus, found: Ways) -> list[set[Query]]:
    """Return the queries without data in each way that have data of the scraped agent."""
    known = with_data(scraped)
    return [known - with_data(server) for server in found.servers.values()]
