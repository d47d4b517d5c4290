"""`otel-rl stack` with the servers of this machine: rules, targets and alerts arrive where they should."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl.serve.servers import PORTS, on_path
from tests.collector import wait_for
from tests.prometheus import Prometheus
from tests.real_parts import needs_program
from tests.servers.running import A_WHILE, get, stack, told

pytestmark = [
    needs_program("prometheus"),
    needs_program("prometheus-alertmanager"),
    pytest.mark.timeout(400),
    pytest.mark.slow,
]


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The stack on other ports, for the runs of this directory."""
    with stack(monkeypatch) as output:
        yield output


def test_it_watches_the_runs(running: str) -> None:
    """A run that begins afterwards is found, its rules are evaluated, and Prometheus knows the Alertmanager."""
    run = otel_rl.init(project="p", id="seen", exporters=["jsonl"], quiet=True, hardware=False)
    prometheus = Prometheus(f"http://127.0.0.1:{PORTS['prometheus']}")
    with run.step(0):
        run.log({"reward": 1.0})

    wait_for(lambda: prometheus.value("rl_run_info"), "the run is not scraped", A_WHILE)
    wait_for(
        lambda: get("prometheus", "/api/v1/alertmanagers")["data"]["activeAlertmanagers"], "no Alertmanager", A_WHILE
    )
    groups = get("prometheus", "/api/v1/rules")["data"]["groups"]
    assert {group["name"] for group in groups} == {"otel-rl", "otel-rl-recorded"}
    assert "grafana" in running


def test_status(running: str) -> None:
    """`status` lists the servers, `up` starts nothing twice, and `down` stops what `up` started."""
    assert told("status")[0] == 0
    assert {one["server"] for one in json.loads(told("status", "--json")[1]) if one["ready"]} == {*on_path()}
    assert told("up", "--local")[1].count("running at") == len(on_path())
    assert told("down")[1].count("stopped") == len(on_path())
    code, output = told("status")
    assert (code, output.count("not running")) == (1, len(on_path()))


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch, running: str) -> None:
    """It is reported, and nothing is started."""
    known = Path("runs") / ".stack" / "prometheus.pid"
    known.rename("aside")
    code, output = told("up", "--local")
    Path("aside").rename(known)  # else nobody stops it

    assert code == 1
    assert "is in use by another program" in output
