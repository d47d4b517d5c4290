"""The exporters in the pipeline of a plain OpenTelemetry pipeline."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from otel_rl.export import Ended, Params, Row, Table, identity
from otel_rl.otlp.step_events import item_of
from otel_rl_exporters import log_records, otlp
from tests.exporters import same_run
from tests.exporters.trackers import JSONL, SIDECAR, SINGLE, STDOUT, WANDB, cases
from tests.faults.misbehaving import collector
from tests.processes import run_python

RESOURCE = {"service.name": "trainer", "rl.run.id": "run-7", "rl.run.project": "gsm8k", "rl.run.name": "baseline"}
ROWS = same_run.rows()


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_RL_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def emit(exporter, records, processor=BatchLogRecordProcessor):
    provider = LoggerProvider(Resource(RESOURCE))
    provider.add_log_record_processor(processor(exporter))
    logger = provider.get_logger("test")
    for record in records:
        logger.emit(record)
    provider.shutdown()


def readable(resource, *records):
    return [ReadableLogRecord(record, Resource(resource)) for record in records]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("tracker", cases(JSONL, STDOUT, SINGLE, WANDB, SIDECAR))
def test_every_tracker(tracker, tmp_path, monkeypatch):
    """Rows, tables and parameters that went through OTel's SDK as events are what they were, bit for bit."""
    (point,) = entry_points(group="opentelemetry_logs_exporter", name=f"otel_rl_{tracker.exporter}")
    place = tmp_path / "gsm8k/run-7"
    place.mkdir(parents=True)
    with (place / "output").open("w") as output, contextlib.redirect_stdout(output):
        emit(point.load()(), map(otlp.log_record, same_run.items()))

    if tracker is not SIDECAR:
        assert tracker.points(place) == same_run.points(tracker)
    if tracker in (SIDECAR, SINGLE, WANDB):
        assert same_run.exact_tables(tracker.tables(place)) == same_run.exact_tables(same_run.shown(tracker))
    if tracker in (SINGLE, WANDB):
        assert tracker.params(place) == {name: tracker.param(value) for name, value in same_run.PARAMS.items()}


def test_a_file_that_was_removed(tmp_path, caplog):
    """There is no outbox: later rows are in a new file, and one warning says what was lost."""
    exporter = log_records.JsonlLogRecords()
    results = [exporter.export(readable(RESOURCE, *map(otlp.log_record, ROWS[:3])))]
    (tmp_path / "gsm8k/run-7/rows.jsonl").unlink()
    results += [exporter.export(readable(RESOURCE, otlp.log_record(row))) for row in ROWS[3:6]]
    exporter.shutdown()

    assert results == [LogRecordExportResult.SUCCESS] * 4
    assert [line["step"] for line in lines(tmp_path / "gsm8k/run-7/rows.jsonl")] == [row.step for row in ROWS[3:6]]
    assert caplog.text.count("rows.jsonl was removed or replaced; its contents are lost") == 1


def test_console(capsys):
    """Rows in events are printed, by a processor that exports from the thread that logs, too."""
    emit(log_records.ConsoleLogRecords(), map(otlp.log_record, ROWS[:2]), SimpleLogRecordProcessor)

    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["step 0", "step 1"]


@pytest.mark.parametrize(
    "item",
    [
        Row(3, 5, {"loss": 0.5, "tokens": 2**60}, attempt=2, late=True, part=1, partial=True),
        Table("t/x", 3, 5, ("a", "b"), ((True, 0.5), (None, "x"), (2**40, "")), attempt=1, ranks=(0, 2), cut_rows=7),
        Table("t", 0, 1, ("a",), ()),
        Params(5, {"lr": 1e-6, "lora": None, "seed": 7, "fp8": True, "path": "x"}),
        Ended(5, 1, "crashed", "rank 0: SIGSEGV", 139),
    ],
    ids=lambda item: type(item).__name__,
)
def test_an_item_is_the_same_behind_its_event(item):
    """With its identity, by which receivers tell repeats: attempt, part, and the mark of a step that was cut off."""
    event = otlp.log_record(item)
    back = item_of(event.event_name, event.timestamp, event.attributes, event.body)

    assert back == item
    assert identity(back) == identity(item)


def test_an_unknown_outcome_is_refused():
    """With those that there are."""
    event = otlp.log_record(Ended(5, 1, "crashed"))
    with pytest.raises(ValueError, match="finished, failed, crashed, lost"):
        item_of(event.event_name, 5, {**event.attributes, "rl.run.outcome": "odd"}, None)


def test_table_on_the_wire():
    """OTLP has a value for each kind of cell, and an empty one for what is not known."""
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs

    table = Table("t", 3, 0, ("a", "b", "c", "d", "e"), ((True, 2**40, 0.5, "x", None),), attempt=1, ranks=(0, 2))
    message = encode_logs(readable(RESOURCE, otlp.log_record(table)))
    (record,) = message.resource_logs[0].scope_logs[0].log_records
    (row,) = record.body.array_value.values

    kinds = [cell.WhichOneof("value") for cell in row.array_value.values]
    assert kinds == ["bool_value", "int_value", "double_value", "string_value", None]
    assert record.event_name == "rl.table"
    assert [attribute.key for attribute in record.attributes] == [
        "rl.loop.iteration",
        "rl.table.name",
        "rl.table.columns",
        "rl.run.attempt",
        "rl.table.ranks",
    ]


def test_large_table():
    """Of a large table the event has the first rows, and says how many it lacks."""
    table = Table("t", 0, 1, ("a",), (("奖" * 10_000,),) * 100, cut_rows=7)
    event = otlp.log_record(table)
    read = item_of(event.event_name, event.timestamp, event.attributes, event.body)

    assert read.rows == table.rows[:4]
    assert read.cut_rows == 7 + 96


def test_requests(run, monkeypatch):
    """Each request is small enough for a collector, and in order, however large the items are."""
    rows = [Row(step, 1, {f"奖励/{name}": step / 7 for name in range(500)}) for step in range(100)]
    tables = [Table("t", step, 1, ("a",), (("奖" * 10_000,),) * 100) for step in range(100)]
    with collector("http/protobuf") as behavior:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behavior.endpoint)
        exporter = otlp.OtlpLogs(run)
        exporter.export([*rows, *tables])
        exporter.shutdown()

    assert len(behavior.requests) > 1
    assert max(int(request.headers["content-length"]) for request in behavior.requests) < 4 * 2**20
    assert [step for request in behavior.requests for step in request.steps] == [*range(100), *range(100)]


def test_runs(tmp_path):
    """Records of several runs go to an exporter each."""
    exporter = log_records.JsonlLogRecords()
    batch = [
        *readable(RESOURCE, otlp.log_record(ROWS[0])),
        *readable({**RESOURCE, "rl.run.id": "run-8"}, otlp.log_record(ROWS[1])),
        *readable(RESOURCE, otlp.log_record(ROWS[2])),
    ]

    assert exporter.export(batch) is LogRecordExportResult.SUCCESS
    exporter.shutdown()
    assert [line["step"] for line in lines(tmp_path / "gsm8k/run-7/rows.jsonl")] == [0, 2]
    assert [line["step"] for line in lines(tmp_path / "gsm8k/run-8/rows.jsonl")] == [1]


def test_plain_service(tmp_path):
    """Where the resource names no run, the service is the run; no name leads out of the directory."""
    exporter = log_records.JsonlLogRecords()
    exporter.export(readable({"service.name": "../../trainer"}, otlp.log_record(ROWS[0])))
    exporter.shutdown()

    (found,) = tmp_path.rglob("rows.jsonl")
    project, run = found.relative_to(tmp_path).parts[:2]
    assert project.startswith("trainer-")
    assert run == project


def test_other_records(tmp_path):
    """Records that are neither rows nor parameters are ignored, and create no file."""
    exporter = log_records.JsonlLogRecords()
    batch = readable(RESOURCE, LogRecord(body="hello"), LogRecord(event_name="checkpoint"))

    assert exporter.export(batch) is LogRecordExportResult.SUCCESS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("attributes", [{}, {"rl.loop.iteration": 0}, {"rl.step.values": 5}])
def test_failure(attributes):
    """An item that is not accepted is a failure result for the pipeline, not an exception."""
    record = LogRecord(event_name="rl.step.metrics", attributes=attributes)

    assert log_records.JsonlLogRecords().export(readable(RESOURCE, record)) is LogRecordExportResult.FAILURE


def test_unwritable_directory(tmp_path):
    """A directory that cannot be made is such a failure, too."""
    (tmp_path / "gsm8k").write_text("")

    assert (
        log_records.JsonlLogRecords().export(readable(RESOURCE, otlp.log_record(ROWS[0])))
        is LogRecordExportResult.FAILURE
    )


def test_by_environment(tmp_path):
    """`OTEL_LOGS_EXPORTER` alone installs it, as the SDK's own configuration builds it."""
    place = Path(tmp_path, "site", "plugin-0.dist-info")  # what an installed otel-rl has; here it may be a source tree
    place.mkdir(parents=True)
    place.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 0\n")
    place.joinpath("entry_points.txt").write_text(
        "[opentelemetry_logs_exporter]\notel_rl_jsonl_here = otel_rl_exporters.log_records:JsonlLogRecords\n"
    )
    program = """
from opentelemetry import _logs
from opentelemetry.sdk._configuration import _initialize_components
_initialize_components(setup_logging_handler=False)
_logs.get_logger("test").emit(_logs.LogRecord(
    timestamp=1, event_name="rl.step.metrics",
    attributes={"rl.loop.iteration": 3, "rl.step.values": {"loss": float("nan")}}))
"""
    environment = {
        "PYTHONPATH": os.pathsep.join([str(place.parent), *filter(None, sys.path)]),
        "OTEL_LOGS_EXPORTER": "otel_rl_jsonl_here",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_RESOURCE_ATTRIBUTES": "rl.run.id=run-9,rl.run.project=gsm8k",
    }
    run_python(program, tmp_path, **environment)

    expected = {"step": 3, "time_unix_nano": 1, "attempt": 0, "values": {"loss": "NaN"}}
    assert lines(tmp_path / "gsm8k/run-9/rows.jsonl") == [expected]


def test_a_malformed_event_costs_itself_alone(tmp_path, caplog):
    """A row without its step is passed over and logged; the others of the batch arrive."""
    exporter = log_records.JsonlLogRecords()
    odd = LogRecord(timestamp=1, event_name="rl.step.metrics", attributes={"rl.step.values": {"loss": 1.0}})
    result = exporter.export(readable(RESOURCE, otlp.log_record(ROWS[0]), odd, otlp.log_record(ROWS[1])))
    exporter.shutdown()

    assert result is LogRecordExportResult.FAILURE
    assert [line["step"] for line in lines(tmp_path / "gsm8k/run-7/rows.jsonl")] == [0, 1]
    assert "malformed rl.step.metrics" in caplog.text
