"""The series that a real Prometheus scraped from a run's agent."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server

import otel_rl
from tests import prometheus
from tests.collector import free_port, wait_for
from tests.processes import local_of
from tests.real_parts import needs_program


@pytest.mark.slow
@needs_program("prometheus")
def test_prometheus_holds_what_the_rows_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step, reward, loss, phase durations and heartbeat are there by query, with the values of the rows."""
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(free_port()))
    run = otel_rl.init(dir=tmp_path, project="scraped", quiet=True)
    assert run.prometheus is not None
    target = run.prometheus.removeprefix("http://").removesuffix("/metrics")
    with prometheus.scraping(tmp_path, target) as server:
        for n in range(5):
            with run.step(n):
                with run.phase("generate"):
                    time.sleep(0.01)
                run.log({"reward": n / 3, "loss": 1 / (n + 1), "kl": 0.25, "bad": math.nan})
        with run.step(5):  # the row of step 4 has left when step 5 begins
            wait_for(lambda: server.value("rl_step_current") == 4, "step 4 was not scraped")
            rows = [json.loads(line) for line in (run.dir / "rows.jsonl").read_text().splitlines()]

            last = rows[-1]["values"]
            assert server.value("rl_environment_reward_mean") == last["reward"]
            assert server.value('rl_train_loss{rl_loss_type="total"}') == last["loss"]
            assert server.value('rl_train_kl{rl_kl_from="reference"}') == last["kl"]
            assert server.value('rl_phase_duration_seconds_count{rl_phase="generate"}') == 5
            assert server.value('rl_phase_duration_seconds_sum{rl_phase="generate"}') == pytest.approx(
                sum(row["values"]["time/generate"] for row in rows), rel=1e-12
            )
            assert server.value("rl_sample_duration_seconds_count") == 5
            assert server.value("rl_train_steps_total") == 5
            assert server.value('rl_numerics_nonfinite_total{rl_metric_name="bad"}') == 5
            assert server.query('rl_metric{rl_metric_name="bad"}') == []
            heartbeat = server.value("time() - rl_step_last_completed_timestamp_seconds")
            assert heartbeat is not None
            assert 0 <= heartbeat < 60
            labels = server.query("rl_step_current")[0][0]
            assert (labels["rl_run_id"], labels["rl_run_project"]) == (run.id, "scraped")


def test_a_taken_port_makes_it_take_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run on the machine has its own port, and both say which."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
        run = otel_rl.init(dir=tmp_path, exporters=[], quiet=True)

        assert run.prometheus is not None
        actual = int(run.prometheus.removesuffix("/metrics").rpartition(":")[2])
        assert port < actual <= port + 100
        assert json.loads((local_of(run.dir) / "agent.json").read_text())["prometheus"] == run.prometheus
        assert urlopen(run.prometheus).status == 200


def test_no_free_port_is_an_error_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the whole range is taken, a strict `init` says so, and how to go on without."""
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "192.0.2.1")  # no address of this machine
    monkeypatch.setenv("OTEL_RL_TOKEN", "a-secret-of-the-tests")
    monkeypatch.setenv("OTEL_RL_INSECURE", "true")

    with pytest.raises(otel_rl.SettingsError, match="OTEL_EXPORTER_PROMETHEUS_PORT"):
        otel_rl.init(dir=tmp_path, exporters=[], quiet=True, strict=True)
    assert otel_rl.current() is None


@needs_program("promtool")
def test_promtool_finds_nothing_wrong(tmp_path: Path) -> None:
    """The exposition passes `promtool check metrics`: every family once, with its description."""
    run = otel_rl.init(dir=tmp_path, quiet=True)
    for n in range(3):
        with run.step(n), run.phase("generate"):
            run.log({"loss": 1.0, "kl": math.nan, "x/y@z": 2.0})
    url = run.prometheus or ""
    wait_for(lambda: b"rl_numerics_nonfinite" in urlopen(url).read(), "the rows are not shown")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=urlopen(url).read(), capture_output=True, check=False
    )

    assert checked.returncode == 0, checked.stderr.decode()


def test_it_can_be_named_with_options(tmp_path: Path) -> None:
    """`exporters=[{"prometheus": {"port": …}}]` says where the endpoint is."""
    port = free_port()
    run = otel_rl.init(dir=tmp_path, exporters=[{"prometheus": {"port": port}}], quiet=True)

    assert run.prometheus == f"http://127.0.0.1:{port}/metrics"


@pytest.mark.slow
@needs_program("prometheus")
def test_it_finds_a_run_and_its_engines(tmp_path: Path) -> None:
    """By the file that the agent writes, and takes away: its own page, and those of inference servers, with its id."""
    registry = CollectorRegistry()
    Gauge("vllm_num_requests_running", "Requests", registry=registry).set(7)
    server, _ = start_http_server(0, "127.0.0.1", registry)
    engine = f"http://127.0.0.1:{server.server_port}/metrics"
    run = otel_rl.init(
        dir=tmp_path, project="p", id="found", quiet=True, hardware={"enabled": False, "engines": [engine]}
    )
    with prometheus.scraping(tmp_path, files=str(tmp_path / ".targets" / "*.json")) as server_of_ours:
        with run.step(0):
            run.log({"loss": 0.5})
        with run.step(1):
            pass
        running = 'vllm_num_requests_running{rl_run_id="found",rl_role="engine"}'
        current = 'rl_step_current{rl_run_id="found"}'
        wait_for(lambda: server_of_ours.value(running) == 7, "the engine is not found", 60)
        wait_for(lambda: server_of_ours.value(current) is not None, "the run is not found", 60)
        files = list((tmp_path / ".targets").iterdir())
        assert run.finish(30)
    server.shutdown()

    assert len(files) == 1
    wait_for(lambda: not files[0].exists(), "the file stays")
