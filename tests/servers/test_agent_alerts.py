"""Alerts about agents that send their metrics: one that is silent raises one, one that ended raises none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

import otel_rl
from dashboards import rules
from otel_rl.recorder.directory import directory as directories
from tests.collector import wait_for
from tests.prometheus import Prometheus, running
from tests.servers.running import A_WHILE, DEPLOY, needs_prometheus_3

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow, needs_prometheus_3]
_FASTER = 12
"""An agent is silent after 15 s."""
_SINCE_STEP = "time() - max_over_time(rl_step_last_completed_timestamp_seconds[10m]) > 60"


def fired(prometheus: Prometheus) -> set[tuple[str, str]]:
    """Return the alerts that have fired, and the runs."""
    found = prometheus.query('max_over_time(ALERTS{alertstate="firing"}[10m])')
    return {(labels["alertname"], labels["rl_run_id"]) for labels, _ in found}


def test_only_the_silent_agent_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing about the training; when it continues, its alert ends."""
    (tmp_path / "rules.yml").write_text(rules.prometheus_rules(rules.read(), _FASTER))
    head = "global: {evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
    (tmp_path / "prometheus.yml").write_text(head + (DEPLOY / "prometheus" / "otlp.yml").read_text())
    with running(tmp_path, "--web.enable-otlp-receiver") as prometheus:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{prometheus.url}/api/v1/otlp/v1/metrics")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
        for name in ("finished", "silent"):
            run = otel_rl.init(project="p", id=name, exporters=["jsonl"], quiet=True, hardware=False)
            for n in range(10):
                with run.step(n):
                    run.log({"reward": 1.0})
            known = f'rl_telemetry_heartbeat_timestamp_seconds{{rl_run_id="{name}"}}'
            wait_for(lambda known=known: prometheus.query(known), "no heartbeat", A_WHILE)  # type: ignore[misc]
            if name == "finished":
                run.finish(30)
        agent = msgspec.json.decode(directories.at(run.dir).status.read_bytes())["pid"]
        os.kill(agent, signal.SIGSTOP)
        try:
            wait_for(lambda: fired(prometheus), "no alert", A_WHILE)
            wait_for(lambda: prometheus.query(_SINCE_STEP), "time does not pass", A_WHILE)

            assert fired(prometheus) == {("RLAgentDown", "silent")}
        finally:
            os.kill(agent, signal.SIGCONT)
        firing = 'ALERTS{alertname="RLAgentDown", alertstate="firing"}'
        wait_for(lambda: not prometheus.query(firing), "the alert has not ended", A_WHILE)
        run.finish(30)
