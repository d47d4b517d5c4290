"""Every tracker: how it is given a run, and what its own reader finds in the run directory."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import shutil
import sqlite3
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import yaml

from otel_rl.export import MACHINE_AXES, Cell, Exporter, Item, RunInfo
from otel_rl.recorder.delivery.plugins import find_exporter
from tests.exporters import hparams, swanlab_file, wandb_file
from tests.exporters.every import needs_packages
from tests.processes import run_python

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
Points = dict[str, list[tuple[int, object]]]
"""Step and exact value of every point by name, in the order of the tracker."""
Shown = tuple[int, tuple[str, ...], list[list[Any]]]
"""Step, columns and rows of a table."""


def strict(text: str | bytes) -> Any:
    """Decode JSON that has no `NaN` and no `Infinity`."""

    def fail(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=fail)


def number(value: Any) -> Any:
    """Return a value, or the float that it names."""
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def bits(value: float) -> int | bytes:
    """Return what is equal only for the same number of the same type: NaN equals NaN, 0.0 is not -0.0, 1 is not 1.0."""
    return struct.pack(">d", value) if isinstance(value, float) else value


def points_of(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Points:
    """Return the points of rows, each a step with its values."""
    found: Points = {}
    for step, values in rows:
        for name, value in values.items():
            found.setdefault(name, []).append((step, bits(value)))
    return found


class Tracker:
    """A tracker. Most keep values, parameters and cells as they are; the others say what they make of them.

    Attributes:
        exporter: The name of its exporter.
    """

    exporter = ""
    options: Mapping[str, Any] = {}  # options for the exporter

    @contextlib.contextmanager
    def exporting(self, run: RunInfo, **options: Any) -> Iterator[Exporter]:
        """Build an exporter for a run, and shut it down at the end."""
        made = find_exporter(self.exporter)(run, **{**self.options, **options})
        yield made
        made.shutdown()

    def deliver(self, run: RunInfo, items: Sequence[Item], **options: Any) -> None:
        """Deliver items as the agent does: in batches that the exporter takes."""
        with self.exporting(run, **options) as exporter:
            size = getattr(exporter, "batch_size", 1)
            for begin in range(0, len(items), size):
                exporter.export(items[begin : begin + size])

    def points(self, directory: Path, *names: str) -> Points:
        """Return the points of the training and of the machine; at least those of `names`, if these are given."""
        raise NotImplementedError

    def params(self, directory: Path) -> dict[str, Cell]:
        """Return the parameters."""
        raise NotImplementedError

    def tables(self, directory: Path) -> list[Shown]:
        """Return the tables, in the order of the tracker."""
        raise NotImplementedError

    def value(self, value: float) -> float:
        """Return what the tracker makes of a value."""
        return value

    def param(self, value: Cell) -> Cell:
        """Return what the tracker makes of a parameter."""
        return value

    def cell(self, cell: Cell) -> Cell:
        """Return what the tracker makes of a cell of a table."""
        return cell


class Jsonl(Tracker):
    """Lines of JSON."""

    exporter = "jsonl"

    def points(self, directory: Path, *names: str) -> Points:
        lines = [line for path in directory.glob("*.jsonl") for line in path.read_text().splitlines()]
        rows = (strict(line) for line in lines)
        return points_of((_position(row), _numbers(row["values"])) for row in rows)


class Stdout(Tracker):
    """Standard output, which goes to a file here."""

    exporter = "stdout"

    @contextlib.contextmanager
    def exporting(self, run: RunInfo, **options: Any) -> Iterator[Exporter]:
        with (
            Path(run.directory, "output").open("a") as output,
            contextlib.redirect_stdout(output),
            super().exporting(run, **options) as exporter,
        ):
            yield exporter

    def points(self, directory: Path, *names: str) -> Points:
        lines = (directory / "output").read_text().splitlines()
        rows = (strict(line.removeprefix("metrics_tag: ")) for line in lines)
        return points_of((row["step"], _numbers(row["metrics"])) for row in rows)


class Sidecar(Tracker):
    """A file for each table."""

    exporter = "sidecar"

    def tables(self, directory: Path) -> list[Shown]:
        found = []
        for path in sorted((directory / "tables").iterdir()):
            content = strict(path.read_bytes())
            assert list(content) == ["columns", "data"]
            rows = [list(map(number, row)) for row in content["data"]]
            found.append((int(path.stem.rpartition("_")[2]), tuple(content["columns"]), rows))
        return found


class TensorBoard(Tracker):
    """Event files, read by TensorBoard: values are floats, and tables are rendered."""

    exporter = "tensorboard"

    def __init__(self, precision: Literal["single", "double"] = "single") -> None:
        self.options = {"precision": precision}

    def points(self, directory: Path, *names: str) -> Points:
        from tensorboard.util.tensor_util import make_ndarray

        found: Points = {}
        for place in filter(Path.exists, (directory / "tensorboard", directory / "tensorboard" / "machine")):
            events = accumulator(place)
            tags = events.Tags()
            for name in tags["scalars"]:
                found[name] = [(event.step, bits(event.value)) for event in events.Scalars(name)]
            for name in tags["tensors"]:
                if events.SummaryMetadata(name).plugin_data.plugin_name == "scalars":
                    tensors = events.Tensors(name)
                    found[name] = [(one.step, bits(make_ndarray(one.tensor_proto).item())) for one in tensors]
        return found

    def params(self, directory: Path) -> dict[str, Cell]:
        (group,) = hparams.sessions(str(directory / "tensorboard"))
        return {**hparams.values(group)}

    def tables(self, directory: Path) -> list[Shown]:
        events = accumulator(directory / "tensorboard")
        texts = [name for name in events.Tags()["tensors"] if _is_table(events, name)]
        found = []
        for name in texts:
            for event in events.Tensors(name):
                (columns, *rows), below = rendered(event)
                assert below == ""
                found.append((event.step, tuple(columns), rows))
        return found

    def value(self, value: float) -> float:
        if self.options["precision"] == "double":
            return float(value)
        try:
            return float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            return math.inf

    def param(self, value: Cell) -> Cell:
        return str(value) if value is None else value if isinstance(value, bool | str) else float(value)

    def cell(self, cell: Cell) -> Cell:
        return "" if cell is None else str(cell).replace("\r\n", "\n")


class Wandb(Tracker):
    """W&B's file, offline. It writes 1.0 as 1."""

    exporter = "wandb"
    options: Mapping[str, Any] = {"mode": "offline"}

    @contextlib.contextmanager
    def exporting(self, run: RunInfo, **options: Any) -> Iterator[Exporter]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WANDB_DATA_DIR", run.directory)
            with super().exporting(run, **options) as exporter:
                yield exporter
        wandb_file.wait_until_written(run.directory)

    def points(self, directory: Path, *names: str) -> Points:
        wandb_file.wait_until_written(str(directory))
        own = {"step", *MACHINE_AXES, "_step", "_runtime", "_timestamp"}
        rows = [row for path in wandb_file.files(str(directory)) for row in wandb_file.history(path)]
        return points_of(
            (
                _position(row),
                {name: self.value(json.loads(_float(text))) for name, text in row.items() if name not in own},
            )
            for row in rows
            if not any(text == '"table-file"' for text in row.values())
        )

    def params(self, directory: Path) -> dict[str, Cell]:
        (path,) = wandb_file.files(str(directory))
        return wandb_file.config(path)

    def tables(self, directory: Path) -> list[Shown]:
        (path,) = wandb_file.files(str(directory))
        keys = {name.removesuffix("/_type") for row in wandb_file.history(path) for name in row if "/_type" in name}
        return [(step, tuple(columns), rows) for key in keys for step, columns, rows in wandb_file.tables(path, key)]

    def value(self, value: float) -> float:
        return int(value) if isinstance(value, float) and value.is_integer() and str(value) != "-0.0" else value


class Mlflow(Tracker):
    """MLflow's client, of a local database or a server: values are finite floats, parameters are texts."""

    exporter = "mlflow"

    def __init__(self, server: str = "") -> None:
        self.options = {"tracking_uri": server} if server else {}

    @contextlib.contextmanager
    def exporting(self, run: RunInfo, **options: Any) -> Iterator[Exporter]:
        place = Path(run.directory, "mlflow.db")
        if not place.exists():
            shutil.copy(empty_database(), place)
        with super().exporting(run, **options) as exporter:
            yield exporter

    def read(self, directory: Path) -> tuple[Any, Any]:
        """Return a client, and the one run that there is."""
        import mlflow

        uri = self.options.get("tracking_uri", f"sqlite:///{directory}/mlflow.db")
        client = mlflow.MlflowClient(tracking_uri=uri)
        (run,) = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
        return client, run

    def points(self, directory: Path, *names: str) -> Points:
        from otel_rl_exporters.mlflow import escape, unescape

        client, run = self.read(directory)
        found = {}
        for name in map(escape, names) if names else run.data.metrics:
            history = client.get_metric_history(run.info.run_id, name)
            found[unescape(name)] = [(point.step, bits(point.value)) for point in history]
        return found  # type: ignore[return-value]

    def params(self, directory: Path) -> dict[str, Cell]:
        from otel_rl_exporters.mlflow import unescape

        _, run = self.read(directory)
        return {unescape(name): value for name, value in run.data.params.items()}

    def tables(self, directory: Path) -> list[Shown]:
        client, run = self.read(directory)
        found: list[Shown] = []
        with tempfile.TemporaryDirectory() as place:
            tables = Path(client.download_artifacts(run.info.run_id, "tables", place))
            for path in sorted(tables.rglob("step_*.json")):
                content = strict(path.read_bytes())
                found.append((int(path.stem.removeprefix("step_")), tuple(content["columns"]), content["data"]))
        return found

    def value(self, value: float) -> float:
        return math.copysign(sys.float_info.max, value) if math.isinf(value) else float(value) + 0.0  # no -0.0

    def param(self, value: Cell) -> Cell:
        return str(value)

    def cell(self, cell: Cell) -> Cell:
        return "NaN" if cell != cell else _NAMES.get(cell, cell) if isinstance(cell, float) else cell  # noqa: PLR0124 # NaN


class Swanlab(Tracker):
    """SwanLab's file, offline: values are floats, tables are Markdown."""

    exporter = "swanlab"
    options: Mapping[str, Any] = {"mode": "offline"}

    def points(self, directory: Path, *names: str) -> Points:
        from otel_rl_exporters.swanlab import unescape

        found = [one.scalar for one in swanlab_file.records(directory) if one.WhichOneof("record_type") == "scalar"]
        return points_of((scalar.step, {unescape(scalar.key): scalar.value.number}) for scalar in found)

    def params(self, directory: Path) -> dict[str, Cell]:
        last = max(directory.glob("swanlab/run-*/files/config.yaml"), key=lambda path: path.stat().st_mtime_ns)
        return {name: entry["value"] for name, entry in yaml.safe_load(last.read_text()).items()}

    def tables(self, directory: Path) -> list[Shown]:
        found = []
        for record in swanlab_file.records(directory):
            if record.WhichOneof("record_type") == "media":
                (item,) = record.media.value.items
                (path,) = (directory / "swanlab").glob(f"run-*/media/text/{item.filename}")
                columns, line, *rows = map(_markdown_cells, path.read_text().split("\n"))
                assert line == ["---"] * len(columns)
                found.append((record.media.step, tuple(columns), rows))
        return found

    def value(self, value: float) -> float:
        return float(value)

    def param(self, value: Cell) -> Cell:
        return str(value) if value is None else value

    def cell(self, cell: Cell) -> Cell:
        return "" if cell is None else str(cell).replace("\r", "")


class Trackio(Tracker):
    """Trackio's database."""

    exporter = "trackio"
    _writer = """
import msgspec
from otel_rl.export import Item, RunInfo
from otel_rl_exporters.trackio import TrackioExporter
run, items, options = msgspec.msgpack.decode(open("items", "rb").read(), type=tuple[RunInfo, list[Item], dict])
exporter = TrackioExporter(run, **options)
for item in items:
    exporter.export([item])
exporter.shutdown()
"""

    def deliver(self, run: RunInfo, items: Sequence[Item], **options: Any) -> None:
        """Deliver items in a process of its own: trackio reads its directory once."""
        Path(run.directory, "items").write_bytes(msgspec.msgpack.encode((run, items, options)))
        run_python(self._writer, Path(run.directory), PYTHONPATH=os.pathsep.join(sys.path))

    def stored(self, directory: Path, query: str) -> list[Any]:
        """Query the database."""
        (path,) = (directory / "trackio").glob("*.db")
        with sqlite3.connect(path) as database:
            return database.execute(query).fetchall()

    def points(self, directory: Path, *names: str) -> Points:
        return points_of(
            (step, {name: number(value) for name, value in values.items() if not isinstance(value, dict)})
            for step, values in self._rows(directory)
        )

    def params(self, directory: Path) -> dict[str, Cell]:
        config = json.loads(self.stored(directory, "SELECT config FROM configs")[-1][0])
        return {name: value for name, value in config.items() if not name.startswith("_")}

    def tables(self, directory: Path) -> list[Shown]:
        found = []
        for step, values in self._rows(directory):
            for value in values.values():
                if isinstance(value, dict) and value["_type"] == "trackio.table":
                    rows = [list(map(number, row.values())) for row in value["_value"]]
                    found.append((step, tuple(value["_value"][0]), rows))
        return found

    def _rows(self, directory: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        for step, text in self.stored(directory, "SELECT step, metrics FROM metrics ORDER BY id"):
            yield step, json.loads(text)


def _position(row: Mapping[str, Any]) -> int:
    """Return the step of a row, or the second of a measurement."""
    return int(next(row[name] for name in ("step", *MACHINE_AXES, "_step") if name in row))


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: number(value) for name, value in values.items()}


def _float(text: str) -> str:
    return "-0.0" if text == "-0" else text


def _markdown_cells(line: str) -> list[str]:
    inner = re.split(r"(?<!\\)(?:\\\\)*\|", line.removeprefix("|").removesuffix("|"))
    return [re.sub(r"\\([\\|])", r"\1", cell[1:-1]).replace("<br>", "\n") for cell in inner]


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # until this process ends


@functools.cache
def empty_database() -> Path:
    """Return a database with MLflow's tables, which MLflow needs seconds to create; agents in tests start without."""
    import mlflow

    place = Path(_directory().name, "mlflow.db")
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{place}").search_experiments()
    return place


def accumulator(directory: Path) -> Any:
    """Return what TensorBoard reads in a directory."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def _is_table(events: Any, name: str) -> bool:
    return name != "config" and events.SummaryMetadata(name).plugin_data.plugin_name == "text"


def rendered(event: Any) -> tuple[list[list[str]], str]:
    """Return the cells of a table as TensorBoard renders them, and the text below the table."""
    from tensorboard.plugin_util import markdown_to_safe_html

    page = _Page()
    page.feed(markdown_to_safe_html(event.tensor_proto.string_val[0]))
    return page.rows, page.below.strip()


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.below = ""
        self._cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")
        elif tag == "br":
            self.handle_data("\n")
        else:
            assert tag in ("table", "thead", "tbody", "p"), f"<{tag}> is markup that the table should not have"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][-1] += data
        else:
            self.below += data


JSONL, STDOUT, SIDECAR, SINGLE, DOUBLE = Jsonl(), Stdout(), Sidecar(), TensorBoard(), TensorBoard("double")
WANDB, MLFLOW, SWANLAB, TRACKIO = Wandb(), Mlflow(), Swanlab(), Trackio()
_NAMED = (JSONL, STDOUT, SIDECAR, SINGLE, DOUBLE, WANDB, MLFLOW, SWANLAB, TRACKIO)
_OTHERS = tuple(kind() for kind in Tracker.__subclasses__() if not any(type(one) is kind for one in _NAMED))


def that_read(what: Literal["points", "params", "tables"]) -> list[Tracker]:
    """Return every tracker whose reader defines this method: a new class is in the tests of all by existing."""
    return [one for one in (*_NAMED, *_OTHERS) if getattr(type(one), what) is not getattr(Tracker, what)]


def cases(*trackers: Tracker) -> list[Any]:
    """Return the trackers as cases of a test, which are skipped where their packages are absent."""
    return [
        pytest.param(one, marks=needs_packages(one.exporter), id="-".join((one.exporter, *one.options.values())))
        for one in trackers
    ]
