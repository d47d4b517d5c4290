"""Weights & Biases, offline: what its own service wrote into the file that `wandb sync` sends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_rl.export import Exporter, Params, Row, RunInfo
from otel_rl_exporters.wandb import WandbExporter
from tests.exporters import wandb_file
from tests.exporters.exactly import exactly
from tests.real_parts import needs

pytestmark = needs("wandb")


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


@contextlib.contextmanager
def exporting(run, **options):
    exporter = WandbExporter(run, **options)
    yield exporter
    exporter.shutdown()
    wandb_file.wait_until_written(run.directory)


def export(run, items, **options):
    with exporting(run, **options) as exporter:
        for item in items:
            exporter.export([item])


def history(run):
    (file,) = wandb_file.files(run.directory)
    return wandb_file.history(file)


def description(file):
    return next(record.run for record in wandb_file.records(file) if record.WhichOneof("record_type") == "run")


def test_exact(run, rows):
    """Each row reads back with its step and every value bit for bit, in order, integers as integers."""
    export(run, rows)
    read = history(run)

    assert [int(line["step"]) for line in read] == [row.step for row in rows]
    values = [
        {name: type(value)(line[name]) for name, value in row.values.items()}
        for line, row in zip(read, rows, strict=True)
    ]
    assert exactly(values) == exactly(row.values for row in rows)


def test_time(run, rows):
    """Each row keeps the time at which it was recorded, not the one at which it was logged."""
    export(run, rows[:3])

    assert [float(line["_timestamp"]) for line in history(run)] == [row.time_unix_nano / 1e9 for row in rows[:3]]


def test_late_and_repeated_steps(run):
    """A step that comes late, or again, is kept: the step is an axis and not W&B's own."""
    export(run, [Row(step, 0, {"loss": step + 0.5}) for step in (5, 3, 5)])

    assert [(line["step"], line["loss"]) for line in history(run)] == [("5", "5.5"), ("3", "3.5"), ("5", "5.5")]


def test_axis(run):
    """Every value is drawn over the axis, which is named as the framework names it."""
    export(run, [Row(5, 0, {"loss": 1, "training/step": 99})], axis="training/step")
    (file,) = wandb_file.files(run.directory)
    metrics = [record.metric for record in wandb_file.records(file) if record.WhichOneof("record_type") == "metric"]

    assert [(m.name or m.glob_name, m.step_metric) for m in metrics] == [("training/step", ""), ("*", "training/step")]
    assert [line["training/step"] for line in history(run)] == ["5"]


def test_params(run):
    """Parameters are the config; later ones replace earlier ones."""
    export(run, [Params(0, {"lr": 1e-6, "actor.seed": 2**60, "lora": None}), Params(0, {"lr": 2e-6, "fp8": True})])
    (file,) = wandb_file.files(run.directory)

    assert wandb_file.config(file) == {"lr": 2e-6, "actor.seed": 2**60, "lora": None, "fp8": True}


def test_identity(run):
    """The W&B run has the id, the project and the name of ours, and what the options add."""
    export(run, [], group="sweep", tags=["gsm8k"], notes="first try", entity="team")
    (file,) = wandb_file.files(run.directory)
    read = description(file)

    assert (read.run_id, read.project, read.display_name) == ("run-7", "grpo-gsm8k", "baseline")
    assert (read.run_group, list(read.tags), read.notes, read.entity) == ("sweep", ["gsm8k"], "first try", "team")


@pytest.mark.parametrize("id_", ["grpo/a:b c?#,;'", "x" * 65])
def test_id_that_wandb_does_not_take(tmp_path, id_):
    """An id is adapted to W&B's rules, and ids that differ stay different."""
    read = []
    for variant in (id_, id_ + "#"):
        run = RunInfo(variant, "p", "n", str(tmp_path / str(len(variant))))
        export(run, [])
        (file,) = wandb_file.files(run.directory)
        read.append(description(file).run_id)

    assert not set("/:?#,;' ") & set("".join(read))
    assert max(map(len, read)) <= 64
    assert read[0] != read[1]


def test_resumed(run, rows):
    """A restarted run goes on under the same id."""
    export(run, rows[:2])
    export(run, rows[2:4])
    first, second = wandb_file.files(run.directory)

    assert description(first).run_id == description(second).run_id == "run-7"
    assert description(second).resume
    assert [line["step"] for file in (first, second) for line in wandb_file.history(file)] == ["0", "1", "2", "3"]


def test_beside_another_run(run, rows, tmp_path_factory):
    """A run of W&B in the same process is left alone."""
    import wandb

    elsewhere = tmp_path_factory.mktemp("mine")
    with wandb.init(project="mine", dir=elsewhere, settings=wandb.Settings(silent=True, console="off")) as mine:
        export(run, rows[:1])

        assert wandb.run is mine
        mine.log({"mine": 1})


def test_silent(run, rows, capfd):
    """Nothing is printed."""
    export(run, rows[:2])

    assert capfd.readouterr() == ("", "")


def test_settings(run):
    """More of W&B's settings can be given, and win."""
    with exporting(run, settings={"silent": False, "quiet": True}) as exporter:
        assert (exporter._run.settings.silent, exporter._run.settings.quiet) == (False, True)


def test_flushed(run):
    """What is logged is in the file within seconds: that is all that a killed process loses."""
    with exporting(run) as exporter:
        exporter.export([Row(0, 0, {"loss": 1.0})])
        deadline = time.monotonic() + 10  # W&B's own choice is 15
        while not history(run) and time.monotonic() < deadline:
            time.sleep(0.1)
        flushed = history(run)

    assert [line["loss"] for line in flushed] == ["1"]


def test_service_of_the_trainer(run):
    """The service of a trainer that uses W&B itself is not used: it would die with the trainer."""
    program = f"""
from otel_rl.export import RunInfo
from otel_rl_exporters.wandb import WandbExporter
WandbExporter(RunInfo("run-7", "p", "n", {run.directory!r})).shutdown()
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "WANDB_SERVICE": "3-1-unix-/nowhere",
    }
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)

    assert len(wandb_file.files(run.directory)) == 1


def test_no_telemetry_of_its_own(run):
    """W&B's reports on itself, which would carry the headers of our OTLP destinations, are off."""
    program = f"""
from otel_rl.export import RunInfo
from otel_rl_exporters.wandb import WandbExporter
WandbExporter(RunInfo("run-7", "p", "n", {run.directory!r})).shutdown()
from wandb.env import error_reporting_enabled
assert not error_reporting_enabled()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    del environment["WANDB_ERROR_REPORTING"]

    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_contract(run):
    """It is an exporter, and its files lie in the run directory."""
    with exporting(run) as exporter:
        assert isinstance(exporter, Exporter)

    assert [file.parents[2] for file in wandb_file.files(run.directory)] == [Path(run.directory)]
