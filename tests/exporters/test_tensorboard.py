"""TensorBoard, read back by TensorBoard."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from otel_rl.export import Exporter, Params, Row
from otel_rl_exporters.tensorboard import TensorBoardExporter
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

    assert event.tensor_proto.string_val[0] == b"| name | value |\n|---|---|\n| lr | 1e-06 |\n| prompt | a\\|b c |"
    assert accumulator(run).SummaryMetadata("config").plugin_data.plugin_name == "text"


def test_resumed(run, rows):
    """A second exporter of the same run continues the curves of the first one."""
    for half in (rows[:100], rows[100:]):
        with exporting(run) as exporter:
            exporter.export(half)

    assert [event.step for event in accumulator(run).Scalars("tokens")] == list(range(200))


@pytest.mark.parametrize("precision", ["double", "single"])
def test_all_or_nothing(run, rows, precision):
    """A batch that does not fit leaves nothing behind, and can be offered again."""
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
from otel_rl.export import Params, Row, RunInfo
from otel_rl_exporters.tensorboard import TensorBoardExporter
exporter = TensorBoardExporter(RunInfo("1", "p", "n", {run.directory!r}), precision="double")
exporter.export([Row(0, 0, {{"loss": 1.0}}), Params(0, {{"lr": 1}})])
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
        assert get("scalars/scalars", "actor/loss") == [[1e9, 0, 0.0], [1e9 + 1, 1, 0.25], [1e9 + 2, 2, 0.5]]
        assert "<td>lr</td>\n<td>0.5</td>" in get("text/text", "config")[0]["text"]


@contextlib.contextmanager
def serving(run, load_fast):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log_dir = str(Path(run.directory, "tensorboard"))
    program = [sys.executable, "-m", "tensorboard.main"]
    command = [*program, "--logdir", log_dir, "--host", "127.0.0.1", "--port", str(port), "--load_fast", load_fast]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(route, tag):
        query = urllib.parse.urlencode({"run": ".", "tag": tag, "format": "json"})
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                answer = direct.open(f"http://127.0.0.1:{port}/data/plugin/{route}?{query}", timeout=10)
                if content := json.load(answer):
                    return content
            assert time.monotonic() < deadline, f"{route} {tag}: the server shows nothing"
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
