"""TensorBoard, read back by TensorBoard."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import socket
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Event, Exporter, Params, Row, RunInfo, Table
from otel_rl_exporters.tensorboard import TensorBoardExporter
from tests.exporters import hparams, same_run
from tests.exporters.exactly import exactly
from tests.real_parts import needs

pytestmark = needs("tensorboard")


@contextlib.contextmanager
def exporting(run, **options):
    exporter = TensorBoardExporter(run, **options)
    yield exporter
    exporter.shutdown()


def accumulator(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(Path(run.directory, "tensorboard")), size_guidance={"scalars": 0, "tensors": 0})
    return read.Reload()


def single(value):
    """Return what is left of a value in single precision."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf")


def test_double(run, rows):
    """With double precision each value reads back bit for bit, with its row's step and time, in order."""
    with exporting(run, precision="double") as exporter:
        exporter.export(rows[:50])
        exporter.export(rows[50:])
    read = {name: accumulator(run).Tensors(name) for name in rows[0].values}

    for name, events in read.items():
        assert [(e.step, e.wall_time) for e in events] == [(r.step, r.time_unix_nano / 1e9) for r in rows]
        values = [{name: e.tensor_proto.double_val[0]} for e in events]
        assert exactly(values) == exactly({name: float(row.values[name])} for row in rows)


def test_single(run, rows):
    """With single precision each value is a scalar, with its row's step and time, in order."""
    with exporting(run) as exporter:
        exporter.export(rows)
    read = {name: accumulator(run).Scalars(name) for name in rows[0].values}

    for name, events in read.items():
        assert [(e.step, e.wall_time) for e in events] == [(r.step, r.time_unix_nano / 1e9) for r in rows]
        assert exactly({name: e.value} for e in events) == exactly({name: single(row.values[name])} for row in rows)


def test_one_event_per_row(run, rows):
    """A row is one event of the file, whatever it holds."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    with exporting(run) as exporter:
        exporter.export(rows)
    (file,) = Path(run.directory, "tensorboard").iterdir()

    assert len(list(RawEventFileLoader(str(file)).Load())) == 1 + len(rows)  # the first is the file's version


def test_params(run):
    """Parameters are a Markdown table of text; what would break the table is escaped."""
    with exporting(run) as exporter:
        exporter.export([Params(10**9, {"lr": 1e-6, "prompt": "a|b\nc"})])
    (event,) = accumulator(run).Tensors("config")

    assert (
        event.tensor_proto.string_val[0] == b"| name | value |\n|---|---|\n| lr | 1e-06 |\n| prompt | a&#124;b<br>c |"
    )
    assert accumulator(run).SummaryMetadata("config").plugin_data.plugin_name == "text"


def test_hparams(run):
    """Parameters are a session of the HParams dashboard; it knows numbers that are exact doubles, truths and texts."""
    values = {"lr": 1e-6, "steps": 200, "seed": 2**60 + 1, "huge": 10**400, "fp8": True, "lora": None, "clip": math.nan}
    with exporting(run) as exporter:
        exporter.export([Params(5 * 10**9, values)])
    (group,) = hparams.sessions(str(Path(run.directory, "tensorboard")))

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
    (group,) = hparams.sessions(str(Path(run.directory, "tensorboard")))

    assert Status.Name(group.sessions[0].status) == status
    assert before <= group.sessions[0].end_time_secs <= time.time()


def test_no_session(run):
    """A run without parameters has no session, and no end of one."""
    with exporting(run) as exporter:
        exporter.export([Row(0, 0, {"loss": 1.0})])

    assert accumulator(run).Tags()["tensors"] == []


def test_table(run):
    """A table is text under its own name at its own step and time."""
    with exporting(run) as exporter:
        exporter.export(same_run.tables())
    events = accumulator(run).Tensors(same_run.TABLE)

    assert [event.step for event in events] == list(same_run.TABLE_STEPS)
    assert [event.wall_time for event in events] == [table.time_unix_nano / 1e9 for table in same_run.tables()]
    assert accumulator(run).SummaryMetadata(same_run.TABLE).plugin_data.plugin_name == "text"


def rendered(run, name):
    """Return the cells as TensorBoard renders them, and the text below the table."""
    from tensorboard.plugin_util import markdown_to_safe_html

    page = _Page()
    page.feed(markdown_to_safe_html(accumulator(run).Tensors(name)[0].tensor_proto.string_val[0]))
    return page.rows, page.below.strip()


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.below, self._cell = [], "", False

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")
        elif tag == "br":
            self.handle_data("\n")
        else:
            assert tag in ("table", "thead", "tbody", "p"), f"<{tag}> is markup that the table should not have"

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        if self._cell:
            self.rows[-1][-1] += data
        else:
            self.below += data


def test_table_is_literal(run):
    """TensorBoard shows every cell as it is, markup included; what is not known is empty."""
    (table, _) = same_run.tables()
    with exporting(run) as exporter:
        exporter.export([table])
    rows, below = rendered(run, same_run.TABLE)

    assert rows[0] == list(same_run.COLUMNS)
    assert rows[1:] == [["" if cell is None else str(cell).replace("\r\n", "\n") for cell in row] for row in table.rows]
    assert below == ""


@given(
    text=st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.sampled_from("\\`*_[]()<>&|!~#-+.=:\t\n")
    )
)
def test_any_cell_is_literal(tmp_path_factory, text):
    """Whatever the text is, it is shown as it is, but for the space at its ends and control characters."""
    run = RunInfo("run-7", "p", "n", str(tmp_path_factory.mktemp("run")))
    with exporting(run) as exporter:
        exporter.export([Table("t", 0, 0, ("a", "b"), ((f"^{text}$", "end"),))])
    rows, _ = rendered(run, "t")

    assert rows[1:] == [[f"^{text}$", "end"]]


def test_control_characters(run):
    """Control characters, which HTML does not have, are shown as Unicode symbols."""
    with exporting(run) as exporter:
        exporter.export([Table("t", 0, 0, ("a",), (("\x00\x02\x1b[31m",),))])

    assert rendered(run, "t")[0][1:] == [["␀␂␛[31m"]]


def test_table_rows(run):
    """Only so many rows are shown as asked for, and how many there are more."""
    with exporting(run, table_rows=2) as exporter:
        exporter.export([Table("t", 0, 0, ("a",), tuple((n,) for n in range(5)), cut_rows=10)])

    assert rendered(run, "t") == ([["a"], ["0"], ["1"]], "13 more rows")


def test_large_table(run):
    """A text of an event has an end: long cells and many rows are cut, and it says how much is missing."""
    with exporting(run) as exporter:
        exporter.export([Table("t", 0, 0, ("a",), (("x" * 5_000,),) * 1_000)])
    rows, below = rendered(run, "t")

    assert rows[1] == ["x" * 4_000 + "… (1000 more)"]
    assert below == f"{1_000 - len(rows[1:])} more rows"
    assert len(accumulator(run).Tensors("t")[0].tensor_proto.string_val[0]) < 300_000


def test_resumed(run, rows):
    """A second exporter of the same run continues the curves of the first one."""
    for half in (rows[:100], rows[100:]):
        with exporting(run) as exporter:
            exporter.export(half)

    assert [event.step for event in accumulator(run).Scalars("tokens")] == list(range(200))


@pytest.mark.parametrize("precision", ["double", "single"])
def test_all_or_nothing(run, rows, precision):
    """A batch that does not fit leaves nothing behind, and can be retried."""
    with exporting(run, precision=precision) as exporter:
        (file,) = Path(run.directory, "tensorboard").iterdir()
        size = file.stat().st_size
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        try:
            with pytest.raises(OSError, match="No space left"):
                exporter.export(rows)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert file.stat().st_size == size
        exporter.export(rows)
    read = accumulator(run)
    events = read.Tensors("tokens") if precision == "double" else read.Scalars("tokens")

    assert [event.step for event in events] == list(range(200))
    if precision == "double":
        assert read.SummaryMetadata("tokens").plugin_data.plugin_name == "scalars"


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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}

    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.parametrize(("precision", "load_fast"), [("single", "true"), ("single", "false"), ("double", "false")])
def test_served(run, precision, load_fast):
    """A TensorBoard server shows the curves; of double precision only without its fast loader."""
    with exporting(run, precision=precision) as exporter:
        exporter.export([Row(step, 10**18 + step * 10**9, {"actor/loss": step / 4}) for step in range(3)])
        exporter.export([Params(10**18, {"lr": 0.5})])

    with serving(run, load_fast) as get:
        scalars = get("scalars/scalars", run=".", tag="actor/loss", format="json")
        config = get("text/text", run=".", tag="config")

        assert scalars == [[1e9, 0, 0.0], [1e9 + 1, 1, 0.25], [1e9 + 2, 2, 0.5]]
        assert "<td>lr</td>\n<td>0.5</td>" in config[0]["text"]


def test_served_session_and_table(run):
    """It shows the parameters in the HParams dashboard, and tables, by its fast loader, too."""
    with exporting(run) as exporter:
        exporter.export(same_run.items(run))
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
    log_dir = str(Path(run.directory, "tensorboard"))
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


def test_contract(run):
    """It is an exporter."""
    with exporting(run) as exporter:
        assert isinstance(exporter, Exporter)
