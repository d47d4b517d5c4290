"""One run in several tools, each read back by its own reader: what went in is what came out."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from otel_rl.export import Row, RunInfo
from otel_rl_exporters.jsonl import JsonlExporter
from otel_rl_exporters.sidecar import SidecarExporter
from tests import collector as collectors
from tests.exporters import hparams, same_run, wandb_file
from tests.exporters.exactly import bits
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.export import Exporter

pytestmark = pytest.mark.slow

NOT_FINITE = {"NaN", "Infinity", "-Infinity"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunInfo:
    return RunInfo("run-7", "grpo-gsm8k", "baseline", str(tmp_path_factory.mktemp("run")))


@pytest.fixture(scope="module")
def expected(run) -> list[Row]:
    return same_run.rows(run)


def deliver(run: RunInfo, factory: Callable[..., Exporter], **options: object) -> None:
    """Hand the run over as the agent does: in batches that the exporter takes."""
    exporter = factory(run, **options)
    items = same_run.items(run)
    size = getattr(factory, "batch_size", 1)
    for start in range(0, len(items), size):
        exporter.export(items[start : start + size])
    exporter.shutdown()


def fail(constant):
    raise AssertionError(f"{constant} is not JSON")


def number(value):
    return float(value) if value in NOT_FINITE else value


def test_what_is_handed_over(run, expected):
    """The run is what it claims to be: 200 steps, 500 names of which no row has all, parameters, and two tables."""
    items = same_run.items(run)

    assert [row.step for row in expected] == list(range(200))
    assert len(same_run.points(expected)) == 500
    assert max(len(row.values) for row in expected) < 100
    assert [type(item).__name__ for item in items].count("Table") == 2
    assert items == same_run.items(run)


@pytest.fixture(scope="module")
def directory(run) -> Path:
    """The run directory with JSON lines and files of tables."""
    deliver(run, JsonlExporter)
    deliver(run, SidecarExporter)
    return Path(run.directory)


def test_json_values(directory, expected):
    """In JSON lines every value of every step is there, in order, bit for bit."""
    lines = Path(directory, "rows.jsonl").read_text().splitlines()
    read = [json.loads(line, parse_constant=fail) for line in lines]
    rows = [Row(row["step"], 0, {name: number(value) for name, value in row["values"].items()}) for row in read]

    assert [row.step for row in rows] == list(range(same_run.STEPS))
    assert same_run.points(rows) == same_run.points(expected)


def test_json_tables(directory):
    """In the files of tables every cell is there."""
    read = [json.loads(file.read_bytes(), parse_constant=fail) for file in sorted(Path(directory, "tables").iterdir())]
    cells = [[[number(cell) for cell in row] for row in table["data"]] for table in read]

    assert [tuple(table["columns"]) for table in read] == [same_run.COLUMNS] * 2
    assert list(map(same_run.exact_rows, cells)) == [same_run.exact_rows(table.rows) for table in same_run.tables()]


@pytest.fixture(scope="module")
def tensorboard(run):
    """What TensorBoard reads of the run, written in double precision."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from otel_rl_exporters.tensorboard import TensorBoardExporter

    deliver(run, TensorBoardExporter, precision="double")
    return EventAccumulator(str(Path(run.directory, "tensorboard")), size_guidance={"tensors": 0}).Reload()


@needs("tensorboard")
def test_tensorboard_values(tensorboard, expected):
    """In TensorBoard every value of every step is there, in order, bit for bit as a double, and nothing else."""
    from tensorboard.util.tensor_util import make_ndarray

    points = same_run.points(expected, float)
    found = {
        name: [(event.step, bits(make_ndarray(event.tensor_proto).item())) for event in tensorboard.Tensors(name)]
        for name in points
    }

    assert found == points
    text = {"config", same_run.TABLE, "_hparams_/session_start_info", "_hparams_/session_end_info"}
    assert set(tensorboard.Tags()["tensors"]) - set(points) == text


@needs("tensorboard")
def test_tensorboard_params(tensorboard, run):
    """In TensorBoard's HParams every hyper-parameter is there; `None` is a text."""
    (group,) = hparams.sessions(str(Path(run.directory, "tensorboard")))

    assert hparams.values(group) == {**same_run.PARAMS, "actor.lora": "None"}


@needs("tensorboard")
def test_tensorboard_tables(tensorboard):
    """In TensorBoard every table is there at its step, with all its rows."""
    events = tensorboard.Tensors(same_run.TABLE)

    assert [event.step for event in events] == list(same_run.TABLE_STEPS)
    for event, table in zip(events, same_run.tables(), strict=True):
        assert event.tensor_proto.string_val[0].decode().count("\n") == 1 + len(table.rows)


@pytest.fixture(scope="module")
def wandb(run) -> Path:
    """The file that W&B wrote of the run, offline."""
    from otel_rl_exporters.wandb import WandbExporter

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("WANDB_DATA_DIR", run.directory)
        deliver(run, WandbExporter)
        wandb_file.wait_until_written(run.directory)
    (file,) = wandb_file.files(run.directory)
    return file


@needs("wandb")
def test_wandb_values(wandb, expected):
    """In W&B every value of every step is there, in order, bit for bit, and nothing else."""
    lines = [line for line in wandb_file.history(wandb) if f"{same_run.TABLE}/path" not in line]
    own = {"step", "_step", "_runtime", "_timestamp"}
    rows = [
        Row(int(line["step"]), 0, {name: type(value)(line[name]) for name, value in row.values.items()})
        for line, row in zip(lines, expected, strict=True)
    ]

    assert same_run.points(rows) == same_run.points(expected)
    assert [set(line) - own for line in lines] == [set(row.values) for row in expected]


@needs("wandb")
def test_wandb_params(wandb):
    """In W&B every hyper-parameter is there, of its own type."""
    assert same_run.exact_values(wandb_file.config(wandb)) == same_run.exact_values(same_run.PARAMS)


@needs("wandb")
def test_wandb_tables(wandb):
    """In W&B every cell of every table is there, in a history row between the rows of its step and the next."""
    found = wandb_file.tables(wandb, same_run.TABLE)
    steps = [int(line["step"]) for line in wandb_file.history(wandb)]

    assert [step for step, _, _ in found] == list(same_run.TABLE_STEPS)
    cells = [same_run.exact_rows(rows) for _, _, rows in found]
    assert cells == [same_run.exact_rows(table.rows) for table in same_run.tables()]
    assert [a for a, b in pairwise(steps) if a == b] == list(same_run.TABLE_STEPS)
    assert steps == sorted(steps)


@needs("rotel")
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_otlp(run, expected, protocol, tmp_path, monkeypatch):
    """A collector has every step once and in order with all its values, every table, and the parameters."""
    from otel_rl_exporters.otlp import OtlpLogs

    with collectors.running(tmp_path) as collector:
        for name, value in collector.environment(protocol).items():
            monkeypatch.setenv(name, value)
        deliver(run, OtlpLogs)
        collectors.wait_for(lambda: len(collector.steps()) >= same_run.STEPS, "not all events arrived")

        assert [(step, len(values)) for step, values in collector.steps()] == [
            (r.step, len(r.values)) for r in expected
        ]
        names = re.findall(r"EventName: (\S+)\n", collector.text())
        assert (names.count("rl.table"), names.count("rl.run.config"), len(names)) == (2, 1, 203)
