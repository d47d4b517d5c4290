"""The dashboards, asked of a real Prometheus, against the reader that all screens show."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import otel_rl
from otel_rl.look.insight import facts_of
from tests import prometheus
from tests.collector import free_port, wait_for
from tests.dashboards.queries import asked, every_query
from tests.real_parts import needs, needs_program

pytestmark = [pytest.mark.slow, needs("grafana_foundation_sdk"), needs_program("prometheus")]

_PANELS = {
    ("overview", "Reward"): "reward",
    ("overview", "Step time"): "time/step",
    ("overview", "Goodput"): "perf/goodput",
    ("policy", "KL divergence"): "kl",
    ("anatomy", "Steps per second"): "perf/steps_per_second",
}
"""Panels by board and title, and the metric that they show."""
_LAST = 4


def test_dashboards_show_what_the_reader_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step in each panel, and the times of its phases, are those of `open_run`."""
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(free_port()))
    run = otel_rl.init(dir=tmp_path, project="p", quiet=True, hardware=False)
    assert run.prometheus is not None
    target = run.prometheus.removeprefix("http://").removesuffix("/metrics")
    with prometheus.scraping(tmp_path, target) as server:
        for step in range(_LAST + 1):
            with run.step(step):
                for phase in ("generate", "update_actor"):
                    with run.phase(phase):
                        time.sleep(0.01)
                run.log({"reward": step / 3, "kl": 0.25 + step})
        with run.step(_LAST + 1):
            wait_for(lambda: server.value("rl_step_current") == _LAST, "the last row was not scraped")
            shown = {
                (query.board, query.panel): server.query(asked(query.expression, run.id))
                for query in every_query()
                if (query.board, query.panel) in _PANELS
            }
            phases = {
                labels["rl_phase"]: seconds
                for labels, seconds in server.query(f'rl_phase_time_seconds{{rl_run_id="{run.id}",rl_phase_part=""}}')
            }
        assert run.finish(60)
    run_ = otel_rl.open_run(run.dir)
    rows = run_.rows(steps=_LAST)
    last = dict(zip(rows["name"].tolist(), rows["value"].tolist(), strict=True))

    assert {panel: series[0][1] for panel, series in shown.items()} == {
        panel: pytest.approx(last[name], rel=1e-12) for panel, name in _PANELS.items()
    }
    assert phases == {
        phase: pytest.approx(last[f"time/{phase}"], rel=1e-12) for phase in ("generate", "update_actor", "step")
    }
    assert facts_of(run_).summary.steps == _LAST + 2
