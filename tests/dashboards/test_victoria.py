"""The page about VictoriaMetrics, and VictoriaMetrics instead of a Prometheus that scrapes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.collector import wait_for
from tests.dashboards import proof, victoria
from tests.servers.running import A_WHILE, DEPLOY

_PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "victoriametrics.md"
_MARK = "<!-- generated: WRITE_TABLES=1 pytest tests/dashboards/test_victoria.py -->\n"


def test_the_page_lists_what_differs() -> None:
    """Every query that VictoriaMetrics defines otherwise."""
    before, _, _ = _PAGE.read_text().partition(_MARK)
    text = f"{before}{_MARK}\n{victoria.table()}"
    if os.environ.get("WRITE_TABLES"):
        _PAGE.write_text(text)

    assert _PAGE.read_text() == text


@victoria.needs_victoria
@pytest.mark.slow
def test_it_scrapes_with_the_file_of_prometheus(tmp_path: Path) -> None:
    """It finds targets in their files, without the settings that it does not know."""
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text((DEPLOY / "prometheus" / "prometheus.yml").read_text().replace("15s", "1s"))
    (tmp_path / "targets").mkdir()
    scraping = [f"-promscrape.config={configuration}", "-promscrape.config.strictParse=false"]
    with proof.engine(tmp_path) as url:
        host = url.removeprefix("http://").removesuffix("/metrics")
        (tmp_path / "targets" / "one.json").write_text(
            json.dumps([{"targets": [host], "labels": {"rl_run_id": "one"}}])
        )
        with victoria.server(tmp_path, *scraping) as server:
            found = 'vllm:num_requests_running{rl_run_id="one", job="otel-rl"}'
            wait_for(lambda: server.query(found), "nothing was scraped", A_WHILE)
