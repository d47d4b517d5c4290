"""Weights & Biases, offline: what its own service wrote into the file that `wandb sync` sends."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path

import pytest

from otel_rl.export import LogRecord, Params, Refused, Row, RunInfo, Table
from otel_rl_exporters.wandb import WandbExporter
from tests.exporters import same_run, wandb_file
from tests.exporters.trackers import WANDB
from tests.processes import run_python
from tests.real_parts import needs

pytestmark = needs("wandb")


_PATH = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
ROW = Row(0, 0, {"loss": 1.0})


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


exporting, export = WANDB.exporting, WANDB.deliver


def log(run):
    """Return the file that W&B wrote."""
    (file,) = wandb_file.files(run.directory)
    return file


def history(run):
    return wandb_file.history(log(run))


def metrics(run):
    """Return the definitions of metrics."""
    return [record.metric for record in wandb_file.records(log(run)) if record.WhichOneof("record_type") == "metric"]


def description(file):
    return next(record.run for record in wandb_file.records(file) if record.WhichOneof("record_type") == "run")


def test_time(run):
    """Each row keeps the time at which it was recorded, not the one at which it was logged."""
    rows = same_run.rows()[:3]
    export(run, rows)

    assert [float(line["_timestamp"]) for line in history(run)] == [row.time_unix_nano / 1e9 for row in rows]


def test_late_and_repeated_steps(run):
    """A step that comes late, or again, is kept: the step is an axis and not W&B's own."""
    export(run, [Row(step, 0, {"loss": step + 0.5}) for step in (5, 3, 5)])

    assert [(line["step"], line["loss"]) for line in history(run)] == [("5", "5.5"), ("3", "3.5"), ("5", "5.5")]


def test_axis(run):
    """Every value is drawn over the axis, which is named as the framework names it."""
    export(run, [Row(5, 0, {"loss": 1, "training/step": 99})], axis="training/step")

    assert [(m.name or m.glob_name, m.step_metric) for m in metrics(run)] == [
        ("training/step", ""),
        ("*", "training/step"),
    ]
    assert [line["training/step"] for line in history(run)] == ["5"]


def test_names_that_wandb_uses_itself(run, caplog):
    """A value, table or parameter with such a name, or with that of the axis, has a `_` more; nothing is replaced."""
    own = ["step", "_step", "_runtime", "_timestamp", "_wandb"]
    values = {f"{name}{more}": n for more in ("", "_") for n, name in enumerate(own)}
    export(run, [Row(7, 9_000_000_000, values), Table("step", 8, 0, ("a",), ((1,),)), Params(0, {"_wandb": 1})])
    logged, table = history(run)

    assert {name: logged[f"{name}_"] for name in values} == {name: str(n) for name, n in values.items()}
    assert (logged["step"], logged["_timestamp"]) == ("7", "9")
    assert (table["step"], table["step_/_type"]) == ("8", '"table-file"')
    assert wandb_file.config(log(run)) == {"_wandb_": 1}
    assert caplog.text.count("_step is a name of W&B or of the axis; the value is called _step_") == 1


def test_a_value_that_is_the_axis(run):
    """A framework that logs the step itself, under the name of the axis, has it once."""
    export(run, [Row(7, 0, {"training/step": 7})], axis="training/step")

    assert [name for name in history(run)[0] if name.startswith("training")] == ["training/step"]


def test_a_second_axis(run):
    """Values are drawn over the framework's tokens, once a row has them; the measurements of a machine are not."""
    export(run, [Row(5, 0, {"train/loss": 1, "train/num_tokens": 99}), Row(6, 0, {"train/kl": 1})], over="tokens")

    assert [(m.name or m.glob_name, m.step_metric) for m in metrics(run) if m.name != "train/num_tokens"] == [
        ("step", ""),
        ("*", "step"),
        ("train/loss", "train/num_tokens"),
    ]


def test_an_axis_that_does_not_exist(run):
    """The error lists those that do."""
    with pytest.raises(ValueError, match="invalid over='token': must be one of rollout, optimizer, tokens, time"):
        WandbExporter(run, over="token")


def test_params(run):
    """Parameters are the config; later ones replace earlier ones."""
    export(run, [Params(0, {"lr": 1e-6, "actor.seed": 2**60, "lora": None}), Params(0, {"lr": 2e-6, "fp8": True})])

    assert wandb_file.config(log(run)) == {"lr": 2e-6, "actor.seed": 2**60, "lora": None, "fp8": True}


def test_params_that_json_does_not_have(run):
    """NaN and infinities are texts in the config; W&B would make `null` of a NaN."""
    export(run, [Params(0, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": None})])

    assert wandb_file.config(log(run)) == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": None}


def test_table(run):
    """A table is a history row of its own with the step axis, between the rows of its step and of the next one."""
    export(run, [Row(3, 0, {"loss": 1.0}), *same_run.tables(), Row(150, 0, {"loss": 2.0})])
    lines = history(run)

    assert [line["step"] for line in lines] == ["3", "3", "150", "150"]
    assert [line.get(f"{same_run.TABLE}/_type") for line in lines] == [None, '"table-file"', '"table-file"', None]


def test_table_columns(run):
    """W&B knows the type of a column that has one; a column of numbers and texts is taken, too."""
    with exporting(run) as exporter:
        typed = exporter._table(Table("t", 0, 0, ("a", "b"), ((1, "x"), (0.5, None))))
        mixed = exporter._table(Table("t", 0, 0, ("a", "b"), ((1, "x"), ("y", None))))

    assert "Number" in str(typed._column_types)
    assert "Number" not in str(mixed._column_types)


@pytest.mark.parametrize(("table_rows", "counts"), [(4, [4, 4]), (None, [5, 5]), (0, [])])
def test_table_rows(run, table_rows, counts):
    """Only as many rows of a table are logged as asked for; with none, no table is."""
    export(run, same_run.tables(), table_rows=table_rows)

    assert [len(rows) for _, _, rows in WANDB.tables(Path(run.directory))] == counts


def test_table_names(run):
    """A name that W&B does not take, or that leads elsewhere, is adapted; names that differ stay different."""
    names = ["../../../evil", "/etc/x", "a:b#c?*", "a:b#c?", "x" * 300, "x" * 301, "奖励", "a/../b", "plain"]
    export(run, [Table(name, 0, 0, ("a",), ((1,),)) for name in names])
    paths = [json.loads(text) for line in history(run) for key, text in line.items() if key.endswith("/path")]
    files = log(run).parent / "files"
    media = (files / "media/table").resolve()

    assert len(set(paths)) == len(names)
    assert all((files / path).resolve().is_relative_to(media) for path in paths)
    assert paths[-1].startswith("media/table/plain_")
    assert paths[-3].startswith("media/table/奖励_")


def test_table_that_wandb_refuses(run):
    """A table that W&B will never take is refused: it does not hold up what comes after it."""
    with exporting(run) as exporter, pytest.raises(Refused, match="columns"):
        exporter.export([Table("t", 0, 0, ("a", "b"), ((1,),))])


@pytest.mark.slow
def test_table_stays_in_the_run_directory(run, tmp_path):
    """The tables of an offline run wait in the run directory until `wandb sync`, not in the home directory."""
    program = f"""
from otel_rl.export import RunInfo, Table
from otel_rl_exporters.wandb import WandbExporter
exporter = WandbExporter(RunInfo("run-7", "p", "n", {run.directory!r}))
exporter.export([Table("t", 0, 0, ("a",), (("only here",),))])
exporter.shutdown()
"""
    home = Path(run.directory, "home")
    run_python(program, tmp_path, HOME=str(home), **_PATH)
    holding = [path for path in Path(run.directory).rglob("*") if path.is_file() and b"only here" in path.read_bytes()]

    assert holding
    assert not any(path.is_relative_to(home) for path in holding)


def test_identity(run):
    """The W&B run has the run's id, project, name and directory, and the values of the options."""
    export(run, [], group="sweep", tags=["gsm8k"], notes="first try", entity="team")
    read = description(log(run))

    assert log(run).parents[2] == Path(run.directory)
    assert (read.run_id, read.project, read.display_name) == ("run-7", "grpo-gsm8k", "baseline")
    assert (read.run_group, list(read.tags), read.notes, read.entity) == ("sweep", ["gsm8k"], "first try", "team")


@pytest.mark.parametrize("id_", ["grpo/a:b c?#,;'", "x" * 65])
def test_id_that_wandb_does_not_take(tmp_path, id_):
    """An id is adapted to W&B's rules, and ids that differ stay different."""
    read = []
    for variant in (id_, id_ + "#"):
        run = RunInfo(variant, "p", "n", str(tmp_path / str(len(variant))))
        export(run, [])
        read.append(description(log(run)).run_id)

    assert not set("/:?#,;' ") & set("".join(read))
    assert max(map(len, read)) <= 64
    assert read[0] != read[1]


def test_resumed(run):
    """A restarted run goes on under the same id."""
    for steps in ((0, 1), (2, 3)):
        export(run, [Row(step, 0, {"loss": 1.0}) for step in steps])
    first, second = wandb_file.files(run.directory)

    assert description(first).run_id == description(second).run_id == "run-7"
    assert description(second).resume
    assert [line["step"] for file in (first, second) for line in wandb_file.history(file)] == ["0", "1", "2", "3"]


def test_beside_another_run(run, tmp_path_factory):
    """A run of W&B in the same process is left alone."""
    import wandb

    elsewhere = tmp_path_factory.mktemp("mine")
    with wandb.init(
        project="mine", mode="offline", dir=elsewhere, settings=wandb.Settings(silent=True, console="off")
    ) as mine:
        export(run, [ROW])

        assert wandb.run is mine
        mine.log({"mine": 1})


def test_begun_again_after_a_failure(run, monkeypatch):
    """An exporter that fails while it is built leaves the run to the next one of the same process."""

    def fail(*_):
        raise OSError("a log cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr("otel_rl_exporters.wandb.wandb_files.wait_for_writers", fail)
        with pytest.raises(OSError, match="cannot be read"):
            WandbExporter(run)
    export(run, [ROW])

    assert any(wandb_file.history(file) for file in wandb_file.files(run.directory))


def test_silent(run, capfd):
    """Nothing is printed."""
    export(run, [ROW])

    assert capfd.readouterr() == ("", "")


def test_settings(run):
    """More of W&B's settings can be given, and win."""
    with exporting(run, settings={"silent": False, "quiet": True}) as exporter:
        assert (exporter._run.settings.silent, exporter._run.settings.quiet) == (False, True)


def test_flushed(run):
    """Logged rows are in the file within seconds: a killed process loses no more than that."""
    with exporting(run) as exporter:
        exporter.export([ROW])
        deadline = time.monotonic() + 10  # W&B's own choice is 15
        while not history(run) and time.monotonic() < deadline:
            time.sleep(0.1)
        flushed = history(run)

    assert [line["loss"] for line in flushed] == ["1"]


def test_service_of_the_trainer(run, tmp_path):
    """The service of a trainer that uses W&B itself is not used: it would die with the trainer."""
    program = f"""
from otel_rl.export import RunInfo
from otel_rl_exporters.wandb import WandbExporter
WandbExporter(RunInfo("run-7", "p", "n", {run.directory!r})).shutdown()
"""
    run_python(program, tmp_path, WANDB_SERVICE="3-1-unix-/nowhere", **_PATH)

    assert len(wandb_file.files(run.directory)) == 1


def test_no_telemetry_of_its_own(run, tmp_path, monkeypatch):
    """W&B's reports on itself, which would carry the headers of our OTLP exporters, are off."""
    program = f"""
from otel_rl.export import RunInfo
from otel_rl_exporters.wandb import WandbExporter
WandbExporter(RunInfo("run-7", "p", "n", {run.directory!r})).shutdown()
from wandb.env import error_reporting_enabled
assert not error_reporting_enabled()
"""
    monkeypatch.delenv("WANDB_ERROR_REPORTING")

    run_python(program, tmp_path, **_PATH)


@pytest.mark.parametrize(
    "variables",
    [
        {"WANDB_SWEEP_ID": "sw1", "WANDB_RUN_ID": "own"},
        {"WANDB_LAUNCH": "true", "WANDB_RUN_ID": "own", "WANDB_PROJECT": "own"},
        {"WANDB_RUN_ID": "own", "WANDB_RESUME": "must", "WANDB_PROJECT": "own"},
        {"WANDB_RUN_ID": "run-7", "WANDB_PROJECT": "p"},
        {"WANDB_RUN_ID": "own", "WANDB_RESUME_FROM": "own?_step=3"},
        {"WANDB_RUN_ID": "own", "WANDB_FORK_FROM": "other?_step=3"},
    ],
    ids=" ".join,
)
def test_another_run_than_the_trainer_s(run, tmp_path, variables):
    """A sweep, a launch, and a run that is resumed or forked, name the trainer's own run, also to a second exporter."""
    program = f"""
from otel_rl.export import Row, RunInfo
from otel_rl_exporters.wandb import WandbExporter
for step in range(2):
    exporter = WandbExporter(RunInfo("run-7", "p", "n", {run.directory!r}))
    exporter.export([Row(step, 0, {{"loss": 1.0}})])
    exporter.shutdown()
"""
    own = variables["WANDB_RUN_ID"]
    run_python(program, tmp_path, **_PATH, **variables)
    written = {(it.run_id, it.project, it.sweep_id) for it in map(description, wandb_file.files(run.directory))}

    assert written == {("run-7" if own == "own" else "run-7-otel-rl", "p", "")}


def test_a_sweep_in_the_process_of_the_trainer(run, monkeypatch):
    """W&B would replace the id there, so the exporter says where it can run."""
    import wandb  # noqa: F401 - as a trainer does

    monkeypatch.setenv("WANDB_SWEEP_ID", "sw1")
    with pytest.raises(ValueError, match="attach"):
        WandbExporter(run)


def printed(number, text, **more):
    return LogRecord(0, 1_790_000_000_000_000_000 + number, "", 1, "node1", number, "stdout", text, **more)


def test_printed_lines(run):
    """Each is a line of W&B's Logs, with process, step, phase and severity; those of an earlier session are held."""
    failed = printed(1, "failed", severity=17, logger="trainer", attributes={"exception.stacktrace": "ValueError: x"})
    lines = [printed(0, "loading", step=2, phase="update", repeated=3), failed]
    export(run, [ROW, *lines])
    with exporting(run) as exporter:
        held = [exporter.holds(line) for line in (*lines, printed(2, "new"))]
    logged = [record.output_logger.line for record in wandb_file.records(wandb_file.files(run.directory)[0])]

    assert held == [True, True, False]
    assert [text for text in logged if text] == [
        "2026-09-21 14:13:20.000000 node1 rank 1 step 2 update: loading (3 times)\n",
        "2026-09-21 14:13:20.000000 node1 rank 1 ERROR trainer: failed\nValueError: x\n",
    ]
