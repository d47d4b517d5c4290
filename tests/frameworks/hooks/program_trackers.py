"""The trackers of random programs: how each begins and ends a run, logs a value, and what its own files have."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextvars import Context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.exporters import wandb_file

Point = tuple[str, str, float, float | None]
"""The run, the name, the value, and the step; `None` if a row cannot have the step."""
PLACES = ("train", "val", "trial0", "trial1", "trial1/eval", "a")
OWN = "system/"
"""How values begin that a tracker's own thread logs."""
_AXES: tuple[Callable[[int], Any], ...] = (int, float, np.int64, np.float32, lambda n: -1 - n, lambda n: n + 0.5)
_WHOLE = 4  # the first axes are whole numbers of 0 or more


def _tensor(value: float) -> Any:
    import torch

    return torch.tensor([value])


KINDS: tuple[Callable[[float], Any], ...] = (float, np.float64, np.float32, lambda n: np.array([n]), _tensor)
"""How a trainer may hold a number."""


class Op(msgspec.Struct, frozen=True):
    """A call of a program: a value of a run, or the run's end. A run begins with its first value."""

    run: int
    name: str  # of the value; empty for an end
    ahead: int  # how many steps later than the last value
    axis: int  # how the axis is given, where there is one
    kind: int  # how the value is given, one of `KINDS`
    where: str  # here, or in which threads or forked children

    @property
    def is_at_once(self) -> bool:
        """Whether other threads or processes log at the same time, so that a call without a step has any step."""
        return self.where not in ("here", "thread")


class Program:
    """A tracker that runs one program.

    Args:
        place: A directory of its own.
        key: A name that is different for each program.
        has_own_thread: If true, a thread of the tracker's own logs values too.

    Attributes:
        kinds: How many of `KINDS` the tracker charts.
        has_directories: Whether a run is a directory, to which other processes write too.
        can_have_own_thread: Whether a thread of the tracker's own can log values.
        framework: The framework whose hook records; empty if the tracker is captured.
    """

    kinds = len(KINDS)
    has_directories = can_have_own_thread = False
    framework = ""

    def __init__(self, place: Path, key: str, *, has_own_thread: bool = False) -> None:
        self.place, self.key, self.has_own_thread = place, key, has_own_thread

    def begin(self, name: str, number: int) -> Any:
        """Begin a run, or go on with it; it gets the number as its parameter."""
        raise NotImplementedError

    def named(self, name: str, number: int) -> str:
        """Return the name of the run in the tracker; empty if it has none."""
        return name

    def is_shared(self, name: str) -> bool:
        """Return whether a forked child logs to the run that its parent has open."""
        return False

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        """Log a value."""
        raise NotImplementedError

    def end(self, run: Any) -> None:
        """End a run."""
        raise NotImplementedError

    def points(self) -> Iterator[Point]:
        """Read the tracker's files; of several values of one name at one step, the last one comes last."""
        raise NotImplementedError


def parameter(number: int) -> dict[str, int]:
    """Return the parameter that a run gets."""
    return {f"p{number}": number}


class TensorBoard(Program):
    """Writers of PyTorch; a forked child opens its own ones, since it has no copy of their threads."""

    has_directories = True

    def begin(self, name: str, number: int) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(self.place / "tb" / name))
        writer.add_hparams(parameter(number), {}, run_name=f"h{number}")
        return writer

    def named(self, name: str, number: int) -> str:
        return ""

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        run.add_scalar(op.name, KINDS[op.kind](value), step)

    def end(self, run: Any) -> None:
        run.close()

    def points(self) -> Iterator[Point]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        # By their number: TensorBoard sorts files of one second by their names, 10 before 9.
        for file in sorted(self.place.rglob("events.out.tfevents.*"), key=lambda path: int(path.suffix[1:])):
            events = EventAccumulator(str(file), size_guidance={"scalars": 0, "tensors": 0})
            events.Reload()
            for tag in events.Tags()["scalars"]:
                for event in events.Scalars(tag):
                    yield str(file.parent), tag, event.value, event.step


class Mlflow(Program):
    """Runs of one SQLite database, which are resumed after their end; children log to those of their parent."""

    can_have_own_thread = True
    _uri = ""

    def __init__(self, place: Path, key: str, *, has_own_thread: bool = False) -> None:
        from mlflow import MlflowClient

        super().__init__(place, key, has_own_thread=has_own_thread)
        Mlflow._uri = Mlflow._uri or f"sqlite:///{place}/ml.db"
        self._client = MlflowClient(self._uri)
        self._experiment = self._client.create_experiment(key)
        self._ids: dict[str, str] = {}
        self._monitors: dict[str, Any] = {}

    def begin(self, name: str, number: int) -> Any:
        is_new = name not in self._ids
        if is_new:
            self._ids[name] = self._client.create_run(self._experiment, run_name=name).info.run_id
        run = self._ids[name]
        for key, value in parameter(number).items():
            self._client.log_param(run, key, value)
        if is_new and self.has_own_thread:
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            self._monitors[run] = SystemMetricsMonitor(run, sampling_interval=0.01, tracking_uri=self._uri)
            self._monitors[run].start()
        return run

    def is_shared(self, name: str) -> bool:
        return True

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        from mlflow.entities import Metric

        number = KINDS[op.kind](value)
        if op.axis % 3 == 1:
            self._client.log_batch(run, [Metric(op.name, value, round(value), step)])
        else:
            # A child has no thread that would log later.
            at_once = op.axis % 3 == 2 or op.where == "child"
            done = self._client.log_metric(run, op.name, number, round(value), step, synchronous=at_once)
            if done is not None:
                done.wait()

    def end(self, run: Any) -> None:
        if (monitor := self._monitors.pop(run, None)) is not None:
            monitor.finish()
        self._client.set_terminated(run)

    def points(self) -> Iterator[Point]:
        for run in self._client.search_runs([self._experiment]):
            for name in run.data.metrics:
                history = self._client.get_metric_history(run.info.run_id, name)
                for each in sorted(history, key=lambda each: each.timestamp):
                    yield run.info.run_id, name, each.value, each.step


class Wandb(Program):
    """Offline runs that are open at once; those of each second place have an axis, and children log to them."""

    def __init__(self, place: Path, key: str, *, has_own_thread: bool = False) -> None:
        super().__init__(place, key, has_own_thread=has_own_thread)
        self._counters: dict[Any, int] = {}

    def begin(self, name: str, number: int) -> Any:
        import wandb

        run = wandb.init(
            project=self.key, name=name, dir=self.place, reinit="create_new", config=dict(parameter(number))
        )
        if self.is_shared(name):
            run.define_metric("*", step_metric="env")
        self._counters[run] = 0
        return run

    def is_shared(self, name: str) -> bool:
        return name in PLACES[::2]

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        number = KINDS[op.kind](value)
        if self.is_shared(run.name):
            axes = _AXES[:_WHOLE] if op.where == "child" else _AXES
            # Far apart, so that a row whose axis is odd has a step of its own.
            run.log({op.name: number, "env": axes[op.axis % len(axes)](round(value) * 10)})
        elif op.axis % 2 or op.is_at_once:
            # W&B drops values of steps below its counter.
            self._counters[run] += 0 if op.is_at_once else op.ahead
            run.log({op.name: number}, step=self._counters[run])
        else:
            run.log({op.name: number})
            self._counters[run] += 1

    def end(self, run: Any) -> None:
        run.finish()

    def points(self) -> Iterator[Point]:
        if [*self.place.glob("wandb/offline-run-*")]:
            wandb_file.wait_until_written(str(self.place))
        for file in wandb_file.files(str(self.place)):
            for row in wandb_file.history(file):
                values = {name: json.loads(text) for name, text in row.items() if not name.startswith("_")}
                step = values.pop("env", int(row["_step"]))
                for name, value in values.items():
                    yield str(file), name, value, step if step >= 0 and float(step).is_integer() else None


class Accelerate(Wandb):
    """A run of W&B that Accelerate logs to, and whose hook records what Accelerate is given."""

    framework = "accelerate"

    def begin(self, name: str, number: int) -> Any:
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True, log_with="wandb")
        options = {"name": name, "dir": str(self.place)}
        accelerator.init_trackers(self.key, parameter(number), {"wandb": options})
        self._counters[accelerator] = 0
        return accelerator

    def is_shared(self, name: str) -> bool:
        return False

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        self._counters[run] += op.ahead
        run.log({op.name: KINDS[op.kind](value)}, step=self._counters[run])

    def end(self, run: Any) -> None:
        run.end_training()


class Trackio(Program):
    """Runs of trackio, of which a new one begins after an end; a forked child has no thread that sends its values."""

    kinds = 3

    def __init__(self, place: Path, key: str, *, has_own_thread: bool = False) -> None:
        super().__init__(place, key, has_own_thread=has_own_thread)
        self._pid = os.getpid()

    def begin(self, name: str, number: int) -> Any:
        import trackio

        # Writers at once to one database lose values in trackio itself.
        project = f"{self.key}-{PLACES.index(name) if os.getpid() == self._pid else number + len(PLACES)}"
        name, config = self.named(name, number), dict(parameter(number))
        quiet = {"auto_log_gpu": False, "auto_log_cpu": False, "embed": False}
        # In one context, a beginning ends the run that is open.
        return Context().run(trackio.init, project=project, name=name, config=config, **quiet)

    def named(self, name: str, number: int) -> str:
        return f"{name}-{number}"

    def log(self, run: Any, op: Op, value: float, step: int) -> None:
        run.log({op.name: KINDS[op.kind](value)}, step=step if op.axis % 2 or op.is_at_once else None)

    def end(self, run: Any) -> None:
        run.finish()

    def points(self) -> Iterator[Point]:
        for path in Path(os.environ["TRACKIO_DIR"]).glob(f"{self.key}-*.db"):
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
    "accelerate": Accelerate,
}
"""The last one draws programs of one run, with a trait such as `kinds`."""
