"""A replay: an archive goes to real trackers with its own times, steps and attempts, and once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from otel_rl.export import Item, Machine, Params, Row, Span, Table
from otel_rl.recorder.archive.replay import Replay
from otel_rl.recorder.delivery.plugins import find_exporter
from tests import collector as collectors
from tests.exporters import wandb_file
from tests.exporters.every import needs_packages
from tests.exporters.trackers import Jsonl, Mlflow, TensorBoard, Tracker, Wandb, accumulator, empty_database
from tests.look.recorded import Shape, record
from tests.processes import run, start
from tests.real_parts import needs

pytestmark = pytest.mark.slow
RESUMED_AT = 14
SHAPE = Shape(steps=20, resumed_at=RESUMED_AT, nan_from=17, metrics=2, texts=True)
TRACKERS = [pytest.param(one, marks=needs_packages(one.exporter), id=one.exporter) for one in (Wandb(), Mlflow())]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run that was resumed, whose archive alone is left."""
    return record(tmp_path / "runs" / "p" / "old", SHAPE)


def replay(run_dir: Path, to: str, *options: str, **environment: str) -> dict[str, Any]:
    """Replay a run; return what the command says of it as JSON. It must succeed."""
    command = [sys.executable, "-m", "otel_rl.cli", "export", str(run_dir), "--to", to, "--json", *options]
    environment = {"WANDB_MODE": "offline", **environment}
    found: dict[str, Any] = json.loads(run(command, run_dir.parents[2], **environment))
    return found


def items_of(run_dir: Path) -> list[Item]:
    return [item for *_, item in Replay(run_dir / "archive" / "local", {}, {})]


def rows_of(run_dir: Path) -> list[Row]:
    return [item for item in items_of(run_dir) if isinstance(item, Row)]


def points_of(tracker: Tracker, items: Sequence[Item]) -> dict[str, Counter[tuple[int, object]]]:
    """Return how often the tracker is to have each point, by name."""
    from tests.exporters.trackers import bits

    found: dict[str, Counter[tuple[int, object]]] = {}
    for item in items:
        if isinstance(item, Row | Machine):
            marks = {"rl/attempt": item.attempt} if isinstance(item, Row) and item.attempt else {}
            for name, value in {**item.values, **marks}.items():
                found.setdefault(name, Counter())[item.step, bits(tracker.value(value))] += 1
    return found


def times_in(tracker: Tracker, directory: Path) -> set[float]:
    """Return the times of all points of `reward` that a tracker has, in its unit."""
    if isinstance(tracker, Wandb):
        rows = [row for path in wandb_file.files(str(directory)) for row in wandb_file.history(path)]
        return {float(row["_timestamp"]) for row in rows if "reward" in row}
    assert isinstance(tracker, Mlflow)
    client, one = tracker.read(directory)
    return {point.timestamp for point in client.get_metric_history(one.info.run_id, "reward")}


def prepared(run_dir: Path, tracker: Tracker) -> None:
    if isinstance(tracker, Mlflow):
        shutil.copy(empty_database(), run_dir / "mlflow.db")


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_tracker_has_what_the_archive_has(tracker: Tracker, recorded: Path) -> None:
    """Values bit for bit as far as it can, steps, attempts, times, parameters and tables; twice adds nothing."""
    prepared(recorded, tracker)
    first = replay(recorded, tracker.exporter)
    items = items_of(recorded)
    expected = points_of(tracker, items)
    names = tuple(expected)
    is_exact = isinstance(tracker, Wandb)
    times = {row.time_unix_nano / 1e9 if is_exact else row.time_unix_nano // 1_000_000 for row in rows_of(recorded)}

    assert first["complete"]
    assert first["new"][tracker.exporter]["Row"] == sum(isinstance(item, Row) for item in items)
    for options in ([], ["--again"]):
        assert {name: Counter(found) for name, found in tracker.points(recorded, *names).items()} == expected
        assert times_in(tracker, recorded) == times
        again = replay(recorded, tracker.exporter, *options)
        assert again["complete"]
        assert bool(again["new"][tracker.exporter]) == bool(options)
    assert {name: Counter(found) for name, found in tracker.points(recorded, *names).items()} == expected
    (params,) = (item for item in items if isinstance(item, Params))
    if isinstance(tracker, Mlflow):
        assert tracker.params(recorded) == {name: tracker.param(value) for name, value in params.values.items()}
        tables = [item for item in items if isinstance(item, Table)]
        assert len(tracker.tables(recorded)) == len({table.step for table in tables})


@needs_packages("tensorboard")
@pytest.mark.parametrize("precision", ["single", "double"])
def test_tensorboard(recorded: Path, precision: Literal["single", "double"]) -> None:
    """It shows the valid history of scalars, at the times of the rows; it keeps all tensors. Twice adds nothing."""
    (recorded.parents[2] / "otel-rl.toml").write_text(f'exporters = [{{tensorboard = {{precision = "{precision}"}}}}]')
    tracker = TensorBoard(precision)
    is_valid = precision == "double" or (lambda item: item.attempt == 1 or item.step < RESUMED_AT - 10)
    shown = [item for item in items_of(recorded) if not isinstance(item, Row) or is_valid is True or is_valid(item)]
    expected = points_of(tracker, shown)
    times = [item.time_unix_nano / 1e9 for item in shown if isinstance(item, Row)]
    for options in ([], [], ["--again"]):
        replay(recorded, "tensorboard", *options)
        assert {name: Counter(found) for name, found in tracker.points(recorded).items()} == expected
        events = accumulator(recorded / "tensorboard")
        found = events.Scalars("reward") if precision == "single" else events.Tensors("reward")
        assert [one.wall_time for one in found] == times


@needs("rotel")
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_collector_has_what_the_archive_has(recorded: Path, protocol: str) -> None:
    """Each span and each row of all attempts once, also after a second replay."""
    with collectors.running(recorded.parent) as collector:
        for _ in range(2):
            found = replay(recorded, "otlp", **collector.environment(protocol))
            assert found["complete"]
    spans = [item for item in items_of(recorded) if isinstance(item, Span)]

    assert [(one.trace_id, one.span_id) for one in collector.spans()] == [(one.trace_id, one.span_id) for one in spans]
    assert [(step, len(values)) for step, values in collector.steps()] == [
        (row.step, len(row.values)) for row in rows_of(recorded)
    ]
    assert all(str(row.time_unix_nano) in collector.text() for row in rows_of(recorded))


def test_what_a_receiver_refuses(recorded: Path) -> None:
    """An export by OTLP exits with 1, and says how many items were refused."""

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        command = [sys.executable, "-m", "otel_rl.cli", "export", str(recorded), "--to", "otlp", "--json"]
        process = start(command, recorded.parent, OTEL_EXPORTER_OTLP_ENDPOINT=address)
        output, errors = process.communicate(timeout=120)
        server.shutdown()
    spans = sum(isinstance(item, Span) for item in items_of(recorded))

    assert process.returncode == 1
    assert not json.loads(output)["complete"]
    assert f"otlp_traces: {spans} refused_by_exporter lost" in errors


class Killed:
    """An exporter, named by a variable, in a process that is killed once after some rows."""

    batch_size = 4

    def __new__(cls, run: Any) -> Any:
        """Return the exporter, which kills its process the first time."""
        exported = 0
        made = find_exporter(os.environ["KILLED"])(run)
        export, mark = made.export, Path(run.directory, "killed")

        def then_kill(items: Sequence[Item]) -> None:
            nonlocal exported
            export(items)
            exported += sum(isinstance(item, Row) for item in items)
            if exported > SHAPE.steps // 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        made.export = then_kill  # type: ignore[method-assign]
        return made


@pytest.mark.parametrize("tracker", [pytest.param(Jsonl(), id="jsonl"), *TRACKERS])
def test_a_kill_in_the_middle(tracker: Tracker, recorded: Path) -> None:
    """The next replay completes it: nothing is there twice, and nothing is missing."""
    prepared(recorded, tracker)
    name = "tests.cli.test_replay:Killed"
    command = [sys.executable, "-m", "otel_rl.cli", "export", str(recorded), "--to", name]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "KILLED": tracker.exporter, "WANDB_MODE": "offline"}
    killed = start(command, recorded.parents[2], **environment)
    killed.communicate(timeout=120)
    replay(recorded, name, **environment)
    expected = points_of(tracker, items_of(recorded))
    if isinstance(tracker, Jsonl):  # its lines have the attempt apart from the values
        del expected["rl/attempt"]

    assert killed.returncode == -signal.SIGKILL
    assert found_in(tracker, recorded, tuple(expected)) == expected


def found_in(tracker: Tracker, directory: Path, names: tuple[str, ...]) -> dict[str, Counter[tuple[int, object]]]:
    """Return how often a tracker has each point; the killed service of W&B may have left a file without an end."""
    if isinstance(tracker, Wandb):
        wandb_file.wait_until_written(str(directory), last_alone=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wandb_file, "wait_until_written", lambda _: None)
            return {name: Counter(found) for name, found in tracker.points(directory, *names).items()}
    return {name: Counter(found) for name, found in tracker.points(directory, *names).items()}


def test_a_run_without_an_archive(recorded: Path) -> None:
    """The rows of its `rows.jsonl` go to another directory, by project and run; what was recorded later follows."""
    source = recorded.parent / "source"
    replay(recorded, "jsonl", "-o", str(source))
    (first,) = source.rglob("rows.jsonl")
    every = first.read_text().splitlines(keepends=True)
    plain = recorded.parent / "plain"
    plain.mkdir()
    for end in (10, len(every)):
        (plain / "rows.jsonl").write_text("".join(every[:end]))
        found = replay(plain, "jsonl", "-o", str(recorded.parent / "copy"))
        (copy,) = (recorded.parent / "copy").rglob("rows.jsonl")
        assert found["complete"]
        assert copy.read_text().splitlines() == [line.strip() for line in every[:end]]
