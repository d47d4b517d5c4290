"""10,000 steps as fast as they can be logged, read back from what three tools wrote."""

from __future__ import annotations

import json
import math
import random
import struct
from typing import TYPE_CHECKING

import pytest

import otel_rl
from tests.exporters import wandb_file
from tests.processes import rows_of
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

STEPS = 10_000
NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Row = dict[str, float]


@pytest.fixture(scope="module")
def logged() -> list[Row]:
    """Values with every kind of float among them."""
    numbers = random.Random(0)
    rows: list[Row] = []
    for n in range(STEPS):
        loss = {0: math.nan, 1: math.inf, 2: -math.inf}.get(n % 101, numbers.gauss(0, 1))
        rows.append({"actor/pg_loss": loss, "tiny": 5e-324 * n, "reward": numbers.random(), "tokens": n * 2**40})
    return rows


@pytest.fixture(scope="module")
def run_dir(logged: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the finished run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        exporters = ["jsonl", {"tensorboard": {"precision": "double"}}, "wandb"]
        run = otel_rl.init(dir=tmp_path_factory.mktemp("runs"), exporters=exporters, hardware=False, quiet=True)
        for n, values in enumerate(logged):
            run.log(values, step=n)
        assert run.finish(120)
    return run.dir


def test_jsonl_has_every_step_once_in_order_and_exactly(run_dir: Path, logged: list[Row]) -> None:
    """Each line is strict JSON; non-finite values are named."""
    rows = rows_of(run_dir)

    assert [row["step"] for row in rows] == list(range(STEPS))
    assert bits([named(row["values"]) for row in rows]) == bits(logged)  # type: ignore[arg-type]


@needs("tensorboard")
def test_tensorboard_has_every_step_once_in_order_and_exactly(run_dir: Path, logged: list[Row]) -> None:
    """With `precision="double"` what EventAccumulator reads is equal bit for bit."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"tensors": 0}).Reload()
    for name in logged[0]:
        points = events.Tensors(name)

        assert [point.step for point in points] == list(range(STEPS))
        actual = [{name: make_ndarray(point.tensor_proto).item()} for point in points]
        assert bits(actual) == bits([{name: float(row[name])} for row in logged])


@needs("wandb")
def test_wandb_has_every_step_once_in_order_and_exactly(run_dir: Path, logged: list[Row]) -> None:
    """The offline file, decoded, holds each row under our own step axis."""
    wandb_file.wait_until_written(str(run_dir))
    rows = [row for file in wandb_file.files(str(run_dir)) for row in wandb_file.history(file)]

    assert [int(row["step"]) for row in rows] == list(range(STEPS))
    actual = [named({name: json.loads(row[name]) for name in logged[0]}) for row in rows]
    assert bits(actual) == bits(logged)


def named(values: dict[str, float | str]) -> Row:
    """Return the values with the non-finite ones as floats again."""
    return {name: NAMES.get(str(value).strip('"'), value) for name, value in values.items()}  # type: ignore[misc]


def bits(rows: list[Row]) -> list[dict[str, bytes]]:
    """Return what makes floats comparable bit for bit, NaN included."""
    return [{name: struct.pack("<d", value) for name, value in row.items()} for row in rows]
