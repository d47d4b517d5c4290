"""Items as log events: what is decoded is what was encoded, and requests are small enough for a Collector."""

from __future__ import annotations

import pytest
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource

from otel_rl.export import Ended, Params, Row, Table, identity
from otel_rl.serve.bridge.step_events import item_of
from otel_rl_exporters import otlp
from tests.faults.misbehaving import collector


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
    with pytest.raises(ValueError, match="finished, failed, cancelled, crashed, lost"):
        item_of(event.event_name, 5, {**event.attributes, "rl.run.outcome": "odd"}, None)


def test_table_on_the_wire():
    """OTLP has a value for each kind of cell, and an empty one for what is not known."""
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs

    table = Table("t", 3, 0, ("a", "b", "c", "d", "e"), ((True, 2**40, 0.5, "x", None),), attempt=1, ranks=(0, 2))
    message = encode_logs([ReadableLogRecord(otlp.log_record(table), Resource({}))])
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
