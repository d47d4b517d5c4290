"""Random programs of a tracker's runs and writers, and the tracker's own files as the oracle of what is recorded.

`python -m tests.frameworks.hooks.tracker_programs TRACKER COUNT` runs them in a process of its own; trackers keep their
directories and their threads as long as a process lives. It ends with the smallest program that differs, if one does.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import numpy as np
from hypothesis import strategies as st

import otel_rl
from otel_rl.frameworks.instrument import capture
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Logged
from tests.exporters import wandb_file
from tests.samples import IS_FRESH

Point = tuple[str, str, float, float | None]
"""The run, the name, the value, and the step; `None` if a row cannot have the step."""
_PLACES = ("train", "val", "trial0", "trial1", "trial1/eval", "a")


class Op(msgspec.Struct, frozen=True):
    """A call of a program: a value of a run, or the run's end. A run begins with its first value."""

    run: int
    name: str  # of the value; empty for an end
    ahead: int  # how many steps later than the last value
    axis: int  # how the axis is given, where there is one
    where: str  # here, in a thread, or in a forked child


_WHERE = ("here", "here", "thread", "child")
OPS = st.builds(
    Op,
    st.integers(0, 2),
    st.sampled_from(["x", "y", "val/x", ""]),
    st.integers(0, 3),
    st.integers(0, 5),
    st.sampled_from(_WHERE),
)
PROGRAMS = st.tuples(st.permutations(_PLACES).map(lambda order: order[:3]), st.lists(OPS, min_size=2, max_size=12))
_AXES: tuple[Callable[[int], Any], ...] = (int, float, np.int64, np.float32, lambda n: -1 - n, lambda n: n + 0.5)


class Program:
    """A tracker that runs one program; `place` is a directory of its own, and `key` is different for each program.

    Attributes:
        has_children: Whether a forked child can log to it.
    """

    has_children = False

    def __init__(self, place: Path, key: str) -> None:
        self.place, self.key = place, key

    def begin(self, name: str) -> Any:
        """Begin a run, or go on with it."""
        raise NotImplementedError

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        """Log a value."""
        raise NotImplementedError

    def end(self, run: Any) -> None:
        """End a run."""
        raise NotImplementedError

    def points(self) -> Iterator[Point]:
        """Read the tracker's files; of several values of one name at one step, the last one comes last."""
        raise NotImplementedError


class TensorBoard(Program):
    """Writers of PyTorch; a forked child opens its own ones, since it has no copy of their threads."""

    has_children = True

    def begin(self, name: str) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self.place / "tb" / name))

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        run.add_scalar(op.name, value, step)

    def end(self, run: Any) -> None:
        run.close()

    def points(self) -> Iterator[Point]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        for path in {file.parent for file in self.place.rglob("events.out.tfevents.*")}:
            events = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
            events.Reload()
            for tag in events.Tags()["scalars"]:
                for event in events.Scalars(tag):
                    yield str(path), tag, event.value, event.step


class Mlflow(Program):
    """Runs of one SQLite database, which are resumed after their end."""

    _uri = ""

    def __init__(self, place: Path, key: str) -> None:
        from mlflow import MlflowClient

        super().__init__(place, key)
        Mlflow._uri = Mlflow._uri or f"sqlite:///{place}/ml.db"
        self._client = MlflowClient(self._uri)
        self._experiment = self._client.create_experiment(key)
        self._ids: dict[str, str] = {}

    def begin(self, name: str) -> Any:
        if name not in self._ids:
            self._ids[name] = self._client.create_run(self._experiment, run_name=name).info.run_id
        return self._ids[name]

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        from mlflow.entities import Metric

        if op.axis % 2:
            self._client.log_metric(run, op.name, value, round(value), step)
        else:
            self._client.log_batch(run, [Metric(op.name, value, round(value), step)])

    def end(self, run: Any) -> None:
        self._client.set_terminated(run)

    def points(self) -> Iterator[Point]:
        for run in self._ids.values():
            for name in self._client.get_run(run).data.metrics:
                for each in sorted(self._client.get_metric_history(run, name), key=lambda each: each.timestamp):
                    yield run, name, each.value, each.step


class Wandb(Program):
    """Offline runs that are open at once; those of the first place have an axis."""

    def __init__(self, place: Path, key: str) -> None:
        super().__init__(place, key)
        self._counters: dict[Any, int] = {}

    def begin(self, name: str) -> Any:
        import wandb

        run = wandb.init(project=self.key, name=name, dir=self.place, reinit="create_new")
        if name in _PLACES[::2]:
            run.define_metric("*", step_metric="env")
        self._counters[run] = 0
        return run

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        if run.name in _PLACES[::2]:
            # Far apart, so that a row whose axis is odd has a step of its own.
            run.log({op.name: value, "env": _AXES[op.axis](round(value) * 10)})
        elif op.axis % 2:
            self._counters[run] += op.ahead  # W&B drops values of steps below its counter
            run.log({op.name: value}, step=self._counters[run])
        else:
            run.log({op.name: value})
            self._counters[run] += 1

    def end(self, run: Any) -> None:
        run.finish()

    def points(self) -> Iterator[Point]:
        if self._counters:
            wandb_file.wait_until_written(str(self.place))
        for file in wandb_file.files(str(self.place)):
            for row in wandb_file.history(file):
                values = {name: json.loads(text) for name, text in row.items() if not name.startswith("_")}
                step = values.pop("env", int(row["_step"]))
                for name, value in values.items():
                    yield str(file), name, value, step if step >= 0 and float(step).is_integer() else None


class Trackio(Program):
    """Runs of trackio, of which a new one begins after an end."""

    _numbers = itertools.count()

    def begin(self, name: str) -> Any:
        import trackio

        return trackio.init(project=self.key, name=f"{name}-{next(self._numbers)}", auto_log_gpu=False, embed=False)

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        run.log({op.name: value}, step=step if op.axis % 2 else None)

    def end(self, run: Any) -> None:
        run.finish()

    def points(self) -> Iterator[Point]:
        for path in Path(os.environ["TRACKIO_DIR"]).glob(f"{self.key}.db"):
            with sqlite3.connect(path) as database:
                rows = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
            for run, step, text in rows:
                for name, value in json.loads(text).items():
                    yield run, name, value, step


TRACKERS: dict[str, type[Program]] = {
    "tensorboard": TensorBoard,
    "mlflow": Mlflow,
    "wandb": Wandb,
    "trackio": Trackio,
}


def run_program(program: Program, places: list[str], ops: list[Op]) -> None:
    """Run the calls of a program."""
    if program.has_children and any(op.where == "child" for op in ops):
        # A name with a directory in it may be that of a directory's value in a process that does not know the name.
        ops = [msgspec.structs.replace(op, name=op.name.rpartition("/")[2]) for op in ops]
    runs: dict[int, Any] = {}
    steps = dict.fromkeys(range(3), 0)
    for value, op in enumerate(ops, 1):
        if not op.name:
            if op.run in runs:
                program.end(runs.pop(op.run))
            continue

        def call(op: Op = op, value: int = value) -> None:
            if op.run not in runs:
                runs[op.run] = program.begin(places[op.run])
            program.log(runs[op.run], op, float(value), steps[op.run])

        def call_in_child(op: Op = op, value: int = value) -> None:
            run = program.begin(places[op.run])
            program.log(run, op, float(value), 100 + value)  # which of two processes was last, nobody could say
            program.end(run)

        # A step may be below the last one, as trackers allow.
        steps[op.run] = max(0, steps[op.run] + op.ahead - 1)
        if op.where == "child" and program.has_children:
            child = multiprocessing.get_context("fork").Process(target=call_in_child)
            child.start()
            child.join()
            assert child.exitcode == 0
        elif op.where != "here":
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        else:
            call()
    for run in runs.values():
        program.end(run)


def recorded(place: Path) -> Iterator[Point]:
    """Read all journals of a directory of runs, in the order in which their processes wrote them."""
    for journal in sorted(place.rglob("journals/*.attempt*"), key=lambda path: path.name):
        reader = Reader(journal, AnyRecord)
        while records := reader.read():
            for record in records:
                if isinstance(record, Logged):
                    for name, value in record.values.items():
                        yield str(journal.parent), name, float(value), record.step
        reader.close()


def by_curve(points: Iterable[Point]) -> dict[tuple[str, str, str, float], Point]:
    """Return the last point of each step of each curve; a point without a step is alone at its value."""
    return {
        (run, name, *(("value", value) if step is None else ("step", step))): (run, name, value, step)
        for run, name, value, step in points
    }


def by_value(points: Iterable[Point]) -> dict[float, Point]:
    """Return the points by their value, which is different for each."""
    return {point[2]: point for point in points}


def compare(written: list[Point], found: dict[float, Point]) -> None:
    """Fail if a value is lost, doubled, at another step, under another name, or in the curve of another run.

    Args:
        written: All points of the tracker, in their order.
        found: The points that are recorded, without those that a later one replaced in the same run.
    """
    found = {value: point for value, point in found.items() if not point[1].endswith("env")}
    curves = by_curve(written)
    shown = by_value(curves.values())
    # A tracker's run that goes on after its run here has ended may write a step again: each run here keeps its value.
    replaced = {
        value
        for run, name, value, step in written
        if value in found and step is not None and (last := found.get(curves[run, name, "step", step][2]))
        if last[0] != found[value][0]
    }
    assert found.keys() - replaced == shown.keys(), f"lost {shown.keys() - found.keys()}, added {found.keys() - shown}"
    owner: dict[tuple[str, str], tuple[str, str]] = {}
    for value, (run, name, _, step) in shown.items():
        in_run, in_name, _, at = found[value]
        assert step is None or at == step, f"{name} of {run} is at {at} and not at {step}"
        assert f"/{in_name}".endswith(f"/{name}"), f"{name} of {run} is called {in_name}"
        assert owner.setdefault((in_run, in_name), (run, name)) == (run, name), f"{in_name} is of two runs"


def main(tracker: str, count: int) -> None:
    """Draw programs and compare."""
    base, keys = Path(tempfile.mkdtemp()), itertools.count()
    off = {"AGENT": "off", "QUIET": "1", "EXPORTERS": "", "HARDWARE": "0"}
    os.environ.update({f"OTEL_RL_{name}": value for name, value in off.items()})
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", TRACKIO_DIR=str(base / "trackio"))
    capture(tracker)

    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=not IS_FRESH,
        suppress_health_check=[*hypothesis.HealthCheck],
    )
    @hypothesis.given(PROGRAMS)
    def check(drawn: tuple[list[str], list[Op]]) -> None:
        key = f"p{next(keys)}"
        place = base / key
        place.mkdir()
        os.environ["OTEL_RL_DIR"] = str(place / "runs")
        program = TRACKERS[tracker](place, key)
        run_program(program, *drawn)
        while (left := otel_rl.current()) is not None:
            left.finish(0)
        compare([*program.points()], by_value(by_curve(recorded(place / "runs")).values()))

    check()
    print(f"{next(keys)} programs")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
