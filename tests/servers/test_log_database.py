"""Printed lines in VictoriaLogs, sent there by the agent and through a Collector, and found again by rank and step."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector import answers, free_port, wait_for
from tests.processes import start_python
from tests.real_parts import needs_program
from tests.servers.running import A_WHILE, Collector

pytestmark = [needs_program("victoria-logs"), pytest.mark.timeout(300), pytest.mark.slow]
TRAINER = r"""
import logging, os, otel_rl
run = otel_rl.init(project="p", id="r", exporters=[], quiet=True, hardware=False, output={"send": True, "tee": True})
rank = os.environ["RANK"]
for step in range(3):
    with run.step(step), run.phase("generate"):
        print(f"step {step} of rank {rank}", flush=True)
        if (step, rank) == (1, "1"):
            try:
                raise ValueError("no prompt")
            except ValueError:
                logging.getLogger("trainer").exception("rollout failed")
            print("\x1b[31m<script>alert(1)</script>\u202e\x00 token=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", flush=True)
assert run.finish(60)
"""


class LogDatabase:
    """VictoriaLogs with an empty directory."""

    def __init__(self, directory: Path) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        self.takes = f"http://{self._address}/insert/opentelemetry/v1/logs"
        self._directory = directory

    def __enter__(self) -> LogDatabase:
        program = shutil.which("victoria-logs")
        assert program is not None
        command = [program, f"-httpListenAddr={self._address}", f"-storageDataPath={self._directory / 'victoria-logs'}"]
        with (self._directory / "victoria-logs.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(lambda: answers(int(self._address.rpartition(":")[2])), "VictoriaLogs does not listen", A_WHILE)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def lines(self, query: str) -> list[dict[str, str]]:
        """Return the lines that a query finds."""
        asked = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"http://{self._address}/select/logsql/query?{asked}") as answer:
            return [json.loads(line) for line in answer]


@pytest.fixture(params=["sent by the agent", pytest.param("through a Collector", marks=needs_program("otelcol"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogDatabase]:
    """A database that has the lines of a run of two ranks."""
    with LogDatabase(tmp_path) as one:
        settings = {
            "receivers.otlp.protocols.grpc.endpoint": "127.0.0.1:0",
            "extensions.health_check.endpoint": f"127.0.0.1:{free_port()}",
            "exporters.otlp_http/lines.logs_endpoint": one.takes,
            "service.pipelines.logs.exporters": "[otlp_http/lines]",
        }
        gateway = Collector("gateway", tmp_path, settings, TRACES="127.0.0.1:1")
        url = one.takes
        if request.param == "through a Collector":
            url = f"http://127.0.0.1:{gateway.port}/v1/logs"
            gateway.start()
        place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OTEL_RL_RUN_ID": "r"}
        place |= {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "none"}
        ranks = [start_python(TRAINER, tmp_path, **place, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]
        ended = [(*rank.communicate(timeout=120), rank.returncode) for rank in ranks]
        assert [code for *_, code in ended] == [0, 0], ended
        wait_for(lambda: len(one.lines('"of rank"')) == 6, "lines are missing", A_WHILE)
        yield one
        gateway.stop()


def test_lines_of_a_rank_and_a_step(database: LogDatabase) -> None:
    """They are found by rank and step, with phase, severity and exception, without secrets and escape sequences."""
    lines = database.lines('rl.run.id:="r" rl.rank:="1" rl.loop.iteration:="1" | sort by (_time)')
    (failed,) = (line for line in lines if line["severity_text"] == "ERROR")

    assert {line["_msg"] for line in lines} == {
        "step 1 of rank 1",
        "rollout failed",
        "<script>alert(1)</script>\u202e token=[redacted]",
    }
    assert {line["rl.phase"] for line in lines} == {"generate"}
    assert (failed["scope.name"], failed["exception.type"]) == ("trainer", "ValueError")
    assert database.lines(f'trace_id:="{failed["trace_id"]}" span_id:="{failed["span_id"]}" "step 1"')
