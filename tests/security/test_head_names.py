"""Hostile names of journals, hosts and roles at a head: read back from its files, rows, log and metrics."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from prometheus_client.parser import text_string_to_metric_families

from otel_rl.journal.record_events import INDEX, JOURNAL, to_event
from otel_rl.journal.records import Logged, Started
from otel_rl.setup import directory as directories
from tests.agent.reducing import feed, logged, reducing, rows
from tests.bridge.bridges import any_value, pairs
from tests.collector import free_port
from tests.processes import rows_of
from tests.security.hostile import CONTROLS, NAMES
from tests.security.strangers import Victim, ask

if TYPE_CHECKING:
    from pathlib import Path

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


def request(journal: str, host: str, role: str | None) -> ExportLogsServiceRequest:
    """Return the first two records of a process of another machine; without a role, only the second."""
    made = ExportLogsServiceRequest()
    of_resource = made.resource_logs.add()
    of_resource.resource.attributes.extend(pairs({"rl.run.id": "victim", "host.name": host}))
    scope = of_resource.scope_logs.add()
    records: list[Any] = [Logged(time=2, step=0, values={"remote": 1.0})]
    if role is not None:
        records.insert(0, Started("victim", 0, 1, 2, 1, role, 7, host, 4096, 1))
    for index, record in enumerate(records):
        name, body = to_event(record)
        one = scope.log_records.add(event_name=name)
        one.body.CopyFrom(any_value(body))
        one.attributes.extend(pairs({JOURNAL: journal, INDEX: index}))
    return made


def refused(victim: Victim, *given: Any) -> int:
    """Send a request, which gets an answer of OTLP; return how many of its records were refused."""
    status, _, body = ask(victim.port, request(*given).SerializeToString())
    assert status == 200
    answer = ExportLogsServiceResponse.FromString(body).partial_success
    assert not CONTROLS & set(answer.error_message)
    return int(answer.rejected_log_records)


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
