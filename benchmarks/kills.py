"""SIGKILL at random moments to the trainer, to the agent, and to both: what each tracker shows then.

`python -m benchmarks kills --trainer 200 --agent 200 --both 100`. Everything that had returned from `log` has to be in
each tracker once, whole.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import psutil

from benchmarks.tables import Table
from otel_rl.directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TRACKERS = ("jsonl", "tensorboard", "wandb", "mlflow")
_SEED = 15
_PROGRAM = ("otel_rl", "agent", "__main__.py")
"""How a trainer starts the agent: by its file."""
_NOTHING = struct.pack("<qq", -1, -1)
_TRAINER = f"""
import mmap, os, struct, sys, time, otel_rl
step, pause = int(sys.argv[1]), float(sys.argv[2])
run = otel_rl.init(
    dir="runs", project="kills", id="killed", exporters={list(TRACKERS)!r}, hardware=False, quiet=True, idle_timeout=60
)
with open("progress", "r+b") as file:
    progress = mmap.mmap(file.fileno(), 16)
while not os.path.exists("stop"):
    with run.step(step):
        run.log({{"loss": step / 8, "who": float(run.attempt)}})
        progress[:] = struct.pack("<qq", run.attempt, step)
    step += 1
    time.sleep(pause)
assert run.finish(300), run.dir
"""


class Attempt(NamedTuple):
    """What a trainer recorded: the steps whose `log` had returned when it was killed."""

    number: int
    first: int
    last: int


class Shown(NamedTuple):
    """What a tracker shows: for each row its attempt, its step and its part; and how many are not whole."""

    rows: list[tuple[int, int, int]]
    torn: int


class Verdict(NamedTuple):
    """How many rows had to be there, and what is wrong."""

    expected: int
    lost: int
    doubled: int
    torn: int


def measure(*, trainer: int = 200, agent: int = 200, both: int = 100) -> list[Table]:
    """Kill so often; return what became of the rows in each tracker."""
    rows: list[list[str | float | int | bool | None]] = []
    for kind, kills in (("trainer", trainer), ("agent", agent), ("both", both)):
        if kills:
            with tempfile.TemporaryDirectory(prefix="otel-rl-kills-") as place:
                verdicts = run(kind, kills, Path(place))
            rows += [[kind, kills, tracker, *verdict] for tracker, verdict in verdicts.items()]
    columns = ["killed", "kills", "tracker", "rows", "lost", "doubled", "torn"]
    return [Table("SIGKILL at random moments", columns, rows, "W&B offline, decoded; MLflow in SQLite.")]


def run(kind: str, kills: int, place: Path, *, seed: int = _SEED) -> dict[str, Verdict]:
    """Kill `kind` so often in a run in the directory `place`; return the verdict on each tracker."""
    with Session(place, random.Random(seed)) as session:
        session.warm_up()
        {"trainer": session.kill_trainers, "agent": session.kill_agents, "both": session.kill_both}[kind](kills)
        session.finish()
    return {name: verdict(session.attempts, read(session.directory.path)) for name, (read, verdict) in _READERS.items()}


class Session:
    """A run whose processes are killed again and again."""

    def __init__(self, place: Path, dice: random.Random) -> None:
        self._place = place
        self._dice = dice
        self._trainer: subprocess.Popen[bytes] | None = None
        self._first = 0
        self.attempts: list[Attempt] = []
        self.directory = RunDirectory(place / "runs" / "kills" / "killed")

    def __enter__(self) -> Session:
        (self._place / "progress").write_bytes(_NOTHING)
        with (self._place / "progress").open("r+b") as file:
            self._progress = mmap.mmap(file.fileno(), 16)
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self._trainer, *self._agents()]:
            if process is not None:
                _kill(process.pid)
        if self._trainer is not None:
            self._trainer.wait()
        self._progress.close()

    def warm_up(self) -> None:
        """Record a few rows without a kill: the first one that MLflow gets takes seconds."""
        self._start_trainer(0.01)
        time.sleep(0.1)
        self.finish()
        (self._place / "stop").unlink()

    def kill_trainers(self, kills: int) -> None:
        """Kill trainers within 50 ms of their first row; the agent lives on."""
        for _ in range(kills):
            self._start_trainer(0.001)
            time.sleep(self._dice.uniform(0, 0.05))
            self._end_trainer(signal.SIGKILL)

    def kill_agents(self, kills: int) -> None:
        """Kill agents at any moment from their start on, while one trainer records."""
        self._start_trainer(0.01)
        for n in range(kills):
            if n:
                self._start_agent()
            self._wait_for_a_moment()
            for agent in self._agents():
                _kill(agent.pid)
                _wait_for(agent)

    def kill_both(self, kills: int) -> None:
        """Kill trainer and agent, either of them first, within 0.1 s."""
        for _ in range(kills):
            self._start_trainer(0.005)
            self._wait_for_a_moment()
            agents = self._agents()
            first = self._dice.random() < 0.5
            if first:
                self._end_trainer(signal.SIGKILL)
            time.sleep(self._dice.uniform(0, 0.1))
            for agent in agents:
                _kill(agent.pid)
            if not first:
                time.sleep(self._dice.uniform(0, 0.1))
                self._end_trainer(signal.SIGKILL)

    def finish(self) -> None:
        """End the run in order; everything is delivered then."""
        (self._place / "stop").touch()
        if self._trainer is None:
            self._trainer = self._python("-c", _TRAINER, "0", "0")
            self._first = -1
        if self._trainer.wait(600):
            log = self.directory.agent_log
            raise RuntimeError(f"finish() failed; {log} ends:\n{log.read_text()[-2000:]}")
        if self._first >= 0:
            self._note_attempt()
        self._trainer = None
        deadline = time.monotonic() + 600
        while self._agents() and time.monotonic() < deadline:  # it has rows of attempts that were killed left
            time.sleep(0.1)

    def _wait_for_a_moment(self) -> None:
        """Wait for up to 2 s, or every third time until a tracker has got something, and a little more."""
        if self._dice.randrange(3):
            time.sleep(self._dice.uniform(0, 2))
            return
        cursor = self.directory.cursors / f"{self._dice.choice(TRACKERS)}.json"
        before, deadline = cursor.stat().st_mtime_ns, time.monotonic() + 20
        while cursor.stat().st_mtime_ns == before and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(self._dice.uniform(0, 0.3))

    def _start_trainer(self, pause: float) -> None:
        self._progress[:] = _NOTHING
        self._trainer = self._python("-c", _TRAINER, str(self._first), str(pause))
        while struct.unpack("<qq", self._progress[:])[0] < 0:
            if self._trainer.poll() is not None:
                raise RuntimeError(f"the trainer ended with {self._trainer.returncode} before its first row")
            time.sleep(0.001)

    def _end_trainer(self, number: int) -> None:
        assert self._trainer is not None
        self._trainer.send_signal(number)
        self._trainer.wait()
        self._trainer = None
        self._note_attempt()

    def _note_attempt(self) -> None:
        number, last = struct.unpack("<qq", self._progress[:])
        self.attempts.append(Attempt(number, self._first, last))
        self._first = max(0, last + 1 - self._dice.randrange(4))  # as from a checkpoint of some steps ago

    def _start_agent(self) -> None:
        self._python("-m", "otel_rl.agent", str(self.directory.path))

    def _python(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "PYTHONPATH": _path()}
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self._place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _agents(self) -> list[psutil.Process]:
        """Return the agents of this run and their supervisors, whoever started them."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = process.cmdline()
                program = "otel_rl.agent" in line or any(Path(one).parts[-3:] == _PROGRAM for one in line)
                if program and str(self.directory.path) in line:
                    found.append(process)
        return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _wait_for(process: psutil.Process) -> None:
    """Wait until the process is dead, whether its parent has noticed or not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.005)


def _path() -> str:
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)


def _of_all(attempts: list[Attempt], shown: Shown) -> Verdict:
    """Judge a tracker that shows every attempt: each step of each is there once."""
    expected = {(attempt.number, step) for attempt in attempts for step in range(attempt.first, attempt.last + 1)}
    found = Counter(shown.rows)
    there = {(attempt, step) for attempt, step, _ in found}
    return Verdict(len(expected), len(expected - there), sum(n - 1 for n in found.values()), shown.torn)


def _of_the_last(attempts: list[Attempt], shown: Shown) -> Verdict:
    """Judge a tracker that shows the last attempt of each step alone."""
    valid = {step: one.number for one in attempts for step in range(one.first, one.last + 1)}
    found = Counter(step for _, step, _ in shown.rows)
    there = {(step, attempt) for attempt, step, _ in shown.rows}
    return Verdict(len(valid), len(valid.items() - there), sum(n - 1 for n in found.values()), shown.torn)


def _shown(rows: Iterable[tuple[int, int, int, dict[str, float]]], torn: int = 0) -> Shown:
    """Check the values of rows of attempt, step, part and values; some have none of the trainer's."""
    found = []
    for attempt, step, part, values in rows:
        mine = values.keys() & {"loss", "who"}
        if mine and (values.get("loss"), values.get("who")) != (step / 8, attempt):
            torn += 1
        if mine:
            found.append((attempt, step, part))
    return Shown(found, torn)


def _jsonl(run_dir: Path) -> Shown:
    rows, torn = [], 0
    for line in (run_dir / "rows.jsonl").read_bytes().splitlines():
        try:
            row = msgspec.json.decode(line)
            rows.append((row["attempt"], row["step"], row.get("part", 0), row["values"]))
        except (msgspec.DecodeError, KeyError):
            torn += 1
    return _shown(rows, torn)


def _tensorboard(run_dir: Path) -> Shown:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    both = [{(e.step, e.wall_time): e.value for e in events.Scalars(name)} for name in ("loss", "who")]
    counted = [(e.step, e.wall_time) for e in events.Scalars("who")]
    rows = [(int(both[1][at]), at[0], 0, {"who": both[1][at], "loss": both[0].get(at, -1.0)}) for at in counted]
    return _shown(rows, len(both[0].keys() - both[1].keys()))


def _wandb(run_dir: Path) -> Shown:
    from otel_rl_exporters.wandb_log import history

    def rows() -> Iterator[tuple[int, int, int, dict[str, float]]]:
        for path in sorted(run_dir.glob("wandb/*run-*/*.wandb")):
            for row in history(path, "step"):
                _, step, attempt, part, _ = row.key
                yield attempt, step, part, {name: json.loads(text) for name, text in (row.values or {}).items()}  # type: ignore[misc]

    _wait_for_wandb(run_dir)
    return _shown(rows())


def _wait_for_wandb(run_dir: Path) -> None:
    from otel_rl_exporters.wandb_log import wait_for_writers

    wait_for_writers(list(run_dir.glob("wandb/*run-*/*.wandb")), 60)


def _mlflow(run_dir: Path) -> Shown:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{run_dir}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    rows = []
    torn = 0
    for one in client.search_runs(experiments):
        loss = {(p.step, p.timestamp): p.value for p in client.get_metric_history(one.info.run_id, "loss")}
        who = client.get_metric_history(one.info.run_id, "who")
        torn += len(loss.keys() - {(p.step, p.timestamp) for p in who})
        rows += [
            (int(p.value), p.step, 0, {"who": p.value, "loss": loss.get((p.step, p.timestamp), -1.0)}) for p in who
        ]
    return _shown(rows, torn)


_READERS: dict[str, tuple[Callable[[Path], Shown], Callable[[list[Attempt], Shown], Verdict]]] = {
    "jsonl": (_jsonl, _of_all),
    "tensorboard": (_tensorboard, _of_the_last),
    "wandb": (_wandb, _of_all),
    "mlflow": (_mlflow, _of_all),
}
