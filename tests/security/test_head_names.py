"""Hostile names of journals, hosts and roles at a head: read back from its files, rows, log and metrics."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from prometheus_client.parser import text_string_to_metric_families

from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.records import Logged, Started
from tests.collector import free_port
from tests.processes import rows_of
from tests.recorder.agent.reducing import feed, logged, reducing, rows
from tests.security.hostile import CONTROLS, NAMES
from tests.security.strangers import Victim
from tests.serve.bridge.bridges import ask, journal_records

pytestmark = pytest.mark.timeout(300)
_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: |  ")
_NUMBERS = [
    f"rank{'9' * 30}.attempt{'9' * 30}.1",
    "rank-1.attempt-1.1",
    "rank٣.attempt٣.1",
    ".attempt",
    "rank.attempt.",
]
"""Names of journals with numbers that a process cannot have."""


def refused(victim: Victim, journal: str, host: str, role: str | None) -> int:
    """Send the first records of a process, without a role only the second; return how many of them were refused.

    The answer is one of OTLP.
    """
    records: list[Any] = [Logged(time=2, step=0, values={"remote": 1.0})]
    if role is not None:
        records.insert(0, Started("victim", 0, 1, 2, 1, role, 7, host, 4096, 1))
    answer, body = ask(victim.port, journal_records("victim", host, journal, records).SerializeToString())
    assert answer.status == 200
    found = ExportLogsServiceResponse.FromString(body).partial_success
    assert not CONTROLS & set(found.error_message)
    return int(found.rejected_log_records)


@pytest.mark.slow
def test_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written outside of the run, no line of the log and no label is forged, and own rows go on."""
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(free_port()))
    victim = Victim(tmp_path)
    run = victim.run
    local = directories.at(run.dir)
    journals = [refused(victim, name, "node", None) for name in (*NAMES, *_NUMBERS)]
    for number, name in enumerate(NAMES):
        refused(victim, f"rank{number}.attempt0.2", name, "")
        refused(victim, f"worker{number}.attempt0.3", "node", name)
    victim.pace()
    assert run.prometheus is not None
    page = urllib.request.urlopen(run.prometheus, timeout=30).read().decode()
    log = (run.dir / "agent.log").read_text()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    names = [path.name for path in local.journals.iterdir()]

    assert 0 < sum(journals) < len(journals)
    assert journals[-len(_NUMBERS)] == 1  # else its attempt would replace the run's
    assert {path.name for path in tmp_path.iterdir()} <= {run.dir.parent.name, ".targets"}
    assert [name for name in names if CONTROLS & set(name) or len(name.encode()) > 255] == []
    assert not CONTROLS - {"\n"} & set(log)
    assert [line for line in log.split("\n") if line and not _LINE.match(line)] == []
    assert not [sample.name for sample in samples if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", sample.name)]
    assert not [sample for sample in samples if "forged" in sample.name]
    assert {row["attempt"] for row in rows_of(run.dir) if "loss" in row["values"]} == {0}  # type: ignore[operator]
    assert victim.is_unharmed()


@pytest.mark.parametrize("name", ["rank0.attempt" + "9" * 30, f"rank{1 << 31}.attempt0", f"rank0.attempt{1 << 31}"])
def test_a_journal_without_its_first_record(name: str) -> None:
    """A process that its journal's name describes is checked like any other: the state can still be saved."""
    reducer = reducing()
    items = feed(reducer, f"{name}.1", logged(loss=1.0))

    assert rows(items) == []
    assert reducer.state.journals == {}
