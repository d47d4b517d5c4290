"""Exemplars in Prometheus: the duration of a phase leads to the trace of its step, scraped and over OTLP."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.journal.ids import step_ids
from tests.collector import free_port, wait_for
from tests.prometheus import running
from tests.servers.running import A_WHILE, DEPLOY, needs_prometheus_3

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow, needs_prometheus_3]
_QUERY = 'rl_phase_duration_seconds_bucket{rl_phase="generate"}'


def traces(url: str, query: str) -> set[str]:
    """Return the ids of the traces that the exemplars of a query point to."""
    asked = urllib.parse.urlencode({"query": query, "start": time.time() - 3600, "end": time.time() + 60})
    with urllib.request.urlopen(f"{url}/api/v1/query_exemplars?{asked}") as answer:
        found = json.load(answer)["data"]
    return {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}


@pytest.mark.parametrize("way", ["scraped", "otlp"])
def test_a_phase_leads_to_its_trace(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the id of the step, which the agent knows before the step has ended."""
    port = free_port()
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
    job = {"job_name": "otel-rl", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    scraping = json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]})
    otlp = (DEPLOY / "prometheus" / "otlp.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(scraping if way == "scraped" else otlp)
    with running(tmp_path, "--enable-feature=exemplar-storage", "--web.enable-otlp-receiver") as prometheus:
        if way == "otlp":
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{prometheus.url}/api/v1/otlp/v1/metrics")
            monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
        run = otel_rl.init(project="p", id="traced", exporters=["jsonl"], quiet=True, hardware=False)
        with run.step(0):
            with run.phase("generate"):
                pass
            known = f"{step_ids('traced', 0, 0).trace_id:032x}"
            wait_for(lambda: known in traces(prometheus.url, _QUERY), "the phase has no exemplar", A_WHILE)
        run.finish(30)
