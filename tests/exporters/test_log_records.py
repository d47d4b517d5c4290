"""The exporters in the pipeline of a plain OpenTelemetry pipeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from otel_rl.export import Ended, Row, Table
from otel_rl_exporters import log_records, otlp
from tests.exporters import same_run, wandb_file
from tests.exporters.exactly import exactly
from tests.faults.misbehaving import collector
from tests.real_parts import needs

RESOURCE = {"service.name": "trainer", "rl.run.id": "run-7", "rl.run.project": "gsm8k", "rl.run.name": "baseline"}


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_RL_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def row_event(row):
    attributes = {"rl.loop.iteration": row.step, "rl.step.values": row.values, "rl.run.attempt": row.attempt}
    return LogRecord(timestamp=row.time_unix_nano, event_name="rl.step.metrics", attributes=attributes)


def config_event(values):
    return LogRecord(timestamp=1, event_name="rl.run.config", attributes={"rl.run.config.values": values})


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


def test_jsonl(rows, tmp_path):
    """A row that went through OTel's SDK as an event is the row that was sent, bit for bit."""
    emit(log_records.JsonlLogRecords(), map(row_event, rows))
    read = lines(tmp_path / "gsm8k/run-7/rows.jsonl")
    words = {"NaN", "Infinity", "-Infinity"}
    values = [{n: float(v) if v in words else v for n, v in line["values"].items()} for line in read]

    assert [(line["step"], line["time_unix_nano"]) for line in read] == [(r.step, r.time_unix_nano) for r in rows]
    assert exactly(values) == exactly(row.values for row in rows)


def test_a_file_that_was_removed(rows, tmp_path, caplog):
    """There is no outbox: later rows are in a new file, and one warning says what was lost."""
    exporter = log_records.JsonlLogRecords()
    results = [exporter.export(readable(RESOURCE, *map(row_event, rows[:3])))]
    (tmp_path / "gsm8k/run-7/rows.jsonl").unlink()
    results += [exporter.export(readable(RESOURCE, row_event(row))) for row in rows[3:6]]
    exporter.shutdown()

    assert results == [LogRecordExportResult.SUCCESS] * 4
    assert [line["step"] for line in lines(tmp_path / "gsm8k/run-7/rows.jsonl")] == [row.step for row in rows[3:6]]
    assert caplog.text.count("rows.jsonl was removed or replaced; its contents are lost") == 1


@needs("wandb")
def test_wandb(rows, tmp_path):
    """Rows and parameters in events feed a W&B run."""
    emit(log_records.WandbLogRecords(), [config_event({"lr": 1e-6}), *map(row_event, rows[:5])])
    wandb_file.wait_until_written(str(tmp_path / "gsm8k/run-7"))
    (file,) = wandb_file.files(str(tmp_path / "gsm8k/run-7"))

    assert [line["step"] for line in wandb_file.history(file)] == ["0", "1", "2", "3", "4"]
    assert wandb_file.config(file) == {"lr": 1e-6}


@needs("tensorboard")
def test_tensorboard(rows, tmp_path):
    """Rows in events are curves in TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    emit(log_records.TensorBoardLogRecords(), map(row_event, rows))
    read = EventAccumulator(str(tmp_path / "gsm8k/run-7/tensorboard")).Reload()

    assert [event.step for event in read.Scalars("tokens")] == list(range(200))


def test_console(rows, capsys):
    """Rows in events are printed, by a processor that exports from the thread that logs, too."""
    emit(log_records.ConsoleLogRecords(), map(row_event, rows[:2]), SimpleLogRecordProcessor)

    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["step 0", "step 1"]


def test_same_run(run):
    """Every row, table and parameter that OTLP sends as an event comes out of the event as it went in."""
    sent = same_run.items(run)
    records = readable(RESOURCE, *map(otlp.log_record, sent))
    ((_, read),) = log_records.JsonlLogRecords()._by_run(records)

    assert list(map(type, read)) == list(map(type, sent))
    for before, after in zip(sent, read, strict=True):
        if isinstance(before, Row):
            assert (after.step, after.time_unix_nano) == (before.step, before.time_unix_nano)
            assert same_run.points([after]) == same_run.points([before])
        elif isinstance(before, Table):
            assert same_run.exact_rows(after.rows) == same_run.exact_rows(before.rows)
            assert replace(after, rows=()) == replace(before, rows=())
        else:
            assert same_run.exact_values(after.values) == same_run.exact_values(before.values)


def test_table(tmp_path):
    """A table goes through OTel's SDK as an event, with its rows in the body, and is a file at the other end."""
    emit(log_records.SidecarLogRecords(), map(otlp.log_record, same_run.tables()))
    files = sorted((tmp_path / "gsm8k/run-7/tables").iterdir())
    words = {"NaN", "Infinity", "-Infinity"}

    for file, table in zip(files, same_run.tables(), strict=True):
        content = json.loads(file.read_text())
        cells = [[float(cell) if cell in words else cell for cell in row] for row in content["data"]]
        assert tuple(content["columns"]) == table.columns
        assert same_run.exact_rows(cells) == same_run.exact_rows(table.rows)


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


def test_empty_table():
    """A table without rows is one at the other end, too."""
    ((_, (read,)),) = log_records.JsonlLogRecords()._by_run(
        readable(RESOURCE, otlp.log_record(Table("t", 0, 1, ("a",), ())))
    )

    assert read == Table("t", 0, 1, ("a",), ())


def test_large_table():
    """Of a large table the event has the first rows, and says how many it lacks."""
    table = Table("t", 0, 1, ("a",), (("奖" * 10_000,),) * 100, cut_rows=7)
    ((_, (read,)),) = log_records.JsonlLogRecords()._by_run(readable(RESOURCE, otlp.log_record(table)))

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


def test_stdout(rows, capsys):
    """Rows in events are lines for a program to read, too."""
    emit(log_records.StdoutLogRecords(), map(row_event, rows[:2]))

    assert [line[:26] for line in capsys.readouterr().out.splitlines()] == [
        'metrics_tag: {"step": 0, "',
        'metrics_tag: {"step": 1, "',
    ]


def test_runs(rows, tmp_path):
    """Records of several runs go to an exporter each."""
    exporter = log_records.JsonlLogRecords()
    batch = [
        *readable(RESOURCE, row_event(rows[0])),
        *readable({**RESOURCE, "rl.run.id": "run-8"}, row_event(rows[1])),
        *readable(RESOURCE, row_event(rows[2])),
    ]

    assert exporter.export(batch) is LogRecordExportResult.SUCCESS
    exporter.shutdown()
    assert [line["step"] for line in lines(tmp_path / "gsm8k/run-7/rows.jsonl")] == [0, 2]
    assert [line["step"] for line in lines(tmp_path / "gsm8k/run-8/rows.jsonl")] == [1]


def test_plain_service(rows, tmp_path):
    """Where the resource names no run, the service is the run; no name leads out of the directory."""
    exporter = log_records.JsonlLogRecords()
    exporter.export(readable({"service.name": "../../trainer"}, row_event(rows[0])))
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


def test_unwritable_directory(rows, tmp_path):
    """A directory that cannot be made is such a failure, too."""
    (tmp_path / "gsm8k").write_text("")

    assert log_records.JsonlLogRecords().export(readable(RESOURCE, row_event(rows[0]))) is LogRecordExportResult.FAILURE


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
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(place.parent), *filter(None, sys.path)]),
        "OTEL_LOGS_EXPORTER": "otel_rl_jsonl_here",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_RESOURCE_ATTRIBUTES": "rl.run.id=run-9,rl.run.project=gsm8k",
    }
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)

    expected = {"step": 3, "time_unix_nano": 1, "attempt": 0, "values": {"loss": "NaN"}}
    assert lines(tmp_path / "gsm8k/run-9/rows.jsonl") == [expected]


def test_the_end_of_a_run_is_the_same_behind_its_event():
    """Outcome, reason and exit code arrive; an unknown outcome is refused with those that there are."""
    from otel_rl.otlp.step_events import item_of

    ended = Ended(5, 1, "crashed", "rank 0: SIGSEGV", 139)
    event = otlp.log_record(ended)

    assert item_of(event.event_name, event.timestamp, event.attributes, event.body) == ended
    with pytest.raises(ValueError, match="finished, failed, crashed, lost"):
        item_of(event.event_name, 5, {**event.attributes, "rl.run.outcome": "odd"}, None)


def test_a_malformed_event_costs_itself_alone(rows, tmp_path, caplog):
    """A row without its step is passed over and logged; the others of the batch arrive."""
    exporter = log_records.JsonlLogRecords()
    odd = LogRecord(timestamp=1, event_name="rl.step.metrics", attributes={"rl.step.values": {"loss": 1.0}})
    result = exporter.export(readable(RESOURCE, row_event(rows[0]), odd, row_event(rows[1])))
    exporter.shutdown()

    assert result is LogRecordExportResult.FAILURE
    assert [line["step"] for line in lines(tmp_path / "gsm8k/run-7/rows.jsonl")] == [0, 1]
    assert "malformed rl.step.metrics" in caplog.text


def test_a_row_is_the_same_behind_its_event():
    """Number of the row within its step, and the mark of a step that was cut off: receivers tell repeats by them."""
    from otel_rl.export import identity
    from otel_rl.otlp.step_events import item_of

    row = Row(3, 5, {"loss": 0.5}, attempt=2, late=True, part=1, partial=True)
    event = otlp.log_record(row)
    back = item_of(event.event_name, event.timestamp, event.attributes, event.body)

    assert back == row
    assert identity(back) == identity(row)
