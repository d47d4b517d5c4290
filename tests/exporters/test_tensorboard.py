"""TensorBoard, read back by TensorBoard."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Event, Params, Row, RunInfo, Table
from otel_rl_exporters.tensorboard import TensorBoardExporter
from tests.exporters import hparams, same_run
from tests.exporters.trackers import SINGLE, accumulator, rendered
from tests.processes import run_python
from tests.real_parts import needs

pytestmark = needs("tensorboard")


exporting = SINGLE.exporting


def tensorboard(run):
    return Path(run.directory, "tensorboard")


def test_times(run):
    """Each value and each table has the time of its row."""
    rows, tables = same_run.rows(), same_run.tables()
    SINGLE.deliver(run, [*rows, *tables])
    events = accumulator(tensorboard(run))

    assert [event.wall_time for event in events.Scalars("loss")] == [row.time_unix_nano / 1e9 for row in rows]
    assert [one.wall_time for one in events.Tensors(same_run.TABLE)] == [one.time_unix_nano / 1e9 for one in tables]


def test_one_event_per_row(run):
    """A row is one event of the file, whatever it holds; before them are the file's version and the attempt's start."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    rows = same_run.rows()
    SINGLE.deliver(run, rows)
    (file,) = tensorboard(run).iterdir()

    assert len(list(RawEventFileLoader(str(file)).Load())) == 2 + len(rows)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("killed", [False, True])
def test_steps_that_later_attempts_repeat(run, precision, first, killed):
    """The slow loader shows those of the last attempt alone, also at the first restart; the parameters stay."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    exporter, shown = TensorBoardExporter(run, precision=precision), {}
    for attempt in range(2):
        rows = [
            Row(step, 10**9 * (10 * attempt + step), {"loss": attempt}, attempt=attempt) for step in range(first, 4)
        ]
        exporter.export(
            [Params(10**9 * 10 * attempt, {"lr": attempt}), *rows, Row(9, 10**11, {"loss": 9}, attempt=attempt)]
        )
        exporter.export([Row(8, 10**11, {"loss": -1}, attempt=attempt - 1)] if attempt else [])
        exporter = TensorBoardExporter(run, precision=precision) if killed else exporter
        shown |= dict.fromkeys(range(first, 4), attempt)
    exporter.shutdown()
    events = EventAccumulator(str(tensorboard(run)))
    events.Reload()

    assert [(one.step, make_ndarray(one.tensor_proto)) for one in events.Tensors("loss")] == [*shown.items(), (9, 9)]
    assert b"| lr | 1 |" in events.Tensors("config")[-1].tensor_proto.string_val[0]


@needs("torch")
def test_another_writer_of_the_directory(run):
    """The values that another program wrote before into the directory stay."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tensorboard(run))) as writer:
        writer.add_scalar("lr", 0.5, 3)
    (file,) = tensorboard(run).iterdir()
    file.rename(file.with_name(f"events.out.tfevents.{0:010}.earlier"))
    SINGLE.deliver(run, [Row(2, 10**18, {"loss": 1.0})])

    assert [one.value for one in accumulator(tensorboard(run)).Scalars("lr")] == [0.5]


def test_a_value_named_as_the_parameters(run):
    """TensorBoard shows a tag as one kind: a value called as the text of the parameters has a `_` more."""
    SINGLE.deliver(run, [Params(0, {"lr": 1.0}), Row(1, 0, {"config": 3.0})])
    events = accumulator(tensorboard(run))

    assert [event.value for event in events.Scalars("config_")] == [3.0]


def test_params(run):
    """Parameters are a Markdown table of text; what would break the table is escaped."""
    SINGLE.deliver(run, [Params(10**9, {"lr": 1e-6, "prompt": "a|b\nc"})])
    events = accumulator(tensorboard(run))
    (event,) = events.Tensors("config")

    assert (
        event.tensor_proto.string_val[0] == b"| name | value |\n|---|---|\n| lr | 1e-06 |\n| prompt | a&#124;b<br>c |"
    )
    assert events.SummaryMetadata("config").plugin_data.plugin_name == "text"


def test_hparams(run):
    """Parameters are a session of the HParams dashboard; it knows numbers that are exact doubles, truths and texts."""
    values = {"lr": 1e-6, "steps": 200, "seed": 2**60 + 1, "huge": 10**400, "fp8": True, "lora": None, "clip": math.nan}
    SINGLE.deliver(run, [Params(5 * 10**9, values)])
    (group,) = hparams.sessions(str(tensorboard(run)))

    expected = {"seed": str(2**60 + 1), "huge": "1" + "0" * 400, "lora": "None", "clip": "nan"}
    assert hparams.values(group) == {**values, **expected}
    assert group.name == "run-7"
    assert group.sessions[0].start_time_secs == 5.0


@pytest.mark.parametrize(("lost", "status"), [(False, "STATUS_SUCCESS"), (True, "STATUS_FAILURE")])
def test_end_of_session(run, lost, status):
    """The session ends when the exporter does: as a failure if a process of the run was lost."""
    from tensorboard.plugins.hparams.api_pb2 import Status

    events = [Event("rl.process.lost", 0)] if lost else [Event("checkpoint", 0)]
    with exporting(run) as exporter:
        exporter.export([Params(0, {"lr": 1}), *events])
        before = time.time()
    (group,) = hparams.sessions(str(tensorboard(run)))

    assert Status.Name(group.sessions[0].status) == status
    assert before <= group.sessions[0].end_time_secs <= time.time()


def test_no_session(run):
    """A run without parameters has no session, and no end of one."""
    SINGLE.deliver(run, [Row(0, 0, {"loss": 1.0})])

    assert accumulator(tensorboard(run)).Tags()["tensors"] == []


def table(run, name="t"):
    """Return the cells of a table as TensorBoard shows them, and the text below it."""
    return rendered(accumulator(tensorboard(run)).Tensors(name)[0])


@given(
    text=st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.sampled_from("\\`*_[]()<>&|!~#-+.=:\t\n")
    )
)
def test_any_cell_is_literal(tmp_path_factory, text):
    """Whatever the text is, it is shown as it is, but for the space at its ends and control characters."""
    run = RunInfo("run-7", "p", "n", str(tmp_path_factory.mktemp("run")))
    SINGLE.deliver(run, [Table("t", 0, 0, ("a", "b"), ((f"^{text}$", "end"),))])
    rows, _ = table(run)

    assert rows[1:] == [[f"^{text}$", "end"]]


def test_control_characters(run):
    """Control characters, which HTML does not have, are shown as Unicode symbols."""
    SINGLE.deliver(run, [Table("t", 0, 0, ("a",), (("\x00\x02\x1b[31m",),))])

    assert table(run)[0][1:] == [["␀␂␛[31m"]]


def test_table_rows(run):
    """Only so many rows are shown as asked for, and how many there are more."""
    SINGLE.deliver(run, [Table("t", 0, 0, ("a",), tuple((n,) for n in range(5)), cut_rows=10)], table_rows=2)

    assert table(run) == ([["a"], ["0"], ["1"]], "13 more rows")


def test_large_table(run):
    """A text of an event has an end: long cells and many rows are cut, and it says how much is missing."""
    SINGLE.deliver(run, [Table("t", 0, 0, ("a",), (("x" * 5_000,),) * 1_000)])
    rows, below = table(run)

    assert rows[1] == ["x" * 4_000 + "… (1000 more)"]
    assert below == f"{1_000 - len(rows[1:])} more rows"
    assert len(accumulator(tensorboard(run)).Tensors("t")[0].tensor_proto.string_val[0]) < 300_000


def test_no_frameworks(run, tmp_path):
    """Neither torch nor TensorFlow is imported, even where they are installed."""
    for module in ("torch", "tensorflow"):
        tmp_path.joinpath(f"{module}.py").write_text(f"raise SystemExit('{module} was imported')")
    program = f"""
import sys
from otel_rl.export import Params, Row, RunInfo, Table
from otel_rl_exporters.tensorboard import TensorBoardExporter
exporter = TensorBoardExporter(RunInfo("1", "p", "n", {run.directory!r}), precision="double")
exporter.export([Row(0, 0, {{"loss": 1.0}}), Params(0, {{"lr": 1}}), Table("t", 0, 0, ("a",), ((1,),))])
exporter.shutdown()
assert not {{"torch", "tensorflow"}} & set(sys.modules)
"""

    run_python(program, tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "load_fast"), [("single", "true"), ("single", "false"), ("double", "false")])
def test_served(run, precision, load_fast):
    """A TensorBoard server shows the curves; of double precision only without its fast loader."""
    rows = [Row(step, 10**18 + step * 10**9, {"actor/loss": step / 4}) for step in range(3)]
    SINGLE.deliver(run, [*rows, Params(10**18, {"lr": 0.5})], precision=precision)

    with serving(run, load_fast) as get:
        scalars = get("scalars/scalars", run=".", tag="actor/loss", format="json")
        config = get("text/text", run=".", tag="config")

        assert scalars == [[1e9, 0, 0.0], [1e9 + 1, 1, 0.25], [1e9 + 2, 2, 0.5]]
        assert "<td>lr</td>\n<td>0.5</td>" in config[0]["text"]


@pytest.mark.slow
def test_served_session_and_table(run):
    """It shows the parameters in the HParams dashboard, and tables, by its fast loader, too."""
    SINGLE.deliver(run, same_run.items())
    request = {"startIndex": 0, "sliceSize": 9, "allowedStatuses": ["STATUS_SUCCESS"]}

    with serving(run, "true") as get:
        found = get("hparams/session_groups", lambda content: content.get("sessionGroups"), request=json.dumps(request))
        tables = get("text/text", lambda content: len(content) == 2, run=".", tag=same_run.TABLE)
        (group,) = found["sessionGroups"]

        assert group["hparams"] == {**same_run.PARAMS, "actor.lora": "None"}
        assert [table["step"] for table in tables] == list(same_run.TABLE_STEPS)
        assert "<td>What is 1 + 1?</td>" in tables[0]["text"]


@contextlib.contextmanager
def serving(run, load_fast):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log_dir = str(tensorboard(run))
    program = [sys.executable, "-m", "tensorboard.main"]
    command = [*program, "--logdir", log_dir, "--host", "127.0.0.1", "--port", str(port), "--load_fast", load_fast]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(route, ready=bool, **arguments):
        query = urllib.parse.urlencode(arguments)
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                answer = direct.open(f"http://127.0.0.1:{port}/data/plugin/{route}?{query}", timeout=10)
                if ready(content := json.load(answer)):
                    return content
            assert time.monotonic() < deadline, f"{route} {query}: the server shows nothing"
            time.sleep(0.2)

    try:
        yield get
    finally:
        server.terminate()
        server.wait()


def test_wrong_precision(run):
    """A precision that does not exist is an error at once."""
    with pytest.raises(ValueError, match="'half' is neither"):
        TensorBoardExporter(run, precision="half")
