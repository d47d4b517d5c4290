"""SIGKILL at random moments to the trainer, to the agent, and to both: what each tracker shows then.

`python -m benchmarks kills --trainer 200 --agent 200 --both 100`. Everything that had returned from `log` has to be in
each tracker once, whole.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
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

import otel_rl
from benchmarks.shown_rows import Attempt, Verdict, verdict
from benchmarks.tables import Table
from otel_rl.recorder.delivery.outbox_reader import BatchHead, located
from otel_rl.recorder.delivery.progress import Cursor
from otel_rl.recorder.directory import directory as directories

if TYPE_CHECKING:
    from collections.abc import Sequence

TRACKERS = ("archive", "jsonl", "tensorboard", "wandb", "mlflow")
KILLS = {"trainer": 200, "agent": 200, "both": 100}
_SEED = 15
_PROGRAM = Path(otel_rl.__file__).parent / "recorder" / "agent" / "__main__.py"
"""The supervisor, whose child the agent is; a trainer starts it by its file."""
_NOTHING = struct.pack("<qq", -1, -1)
_START_S, _DELIVER_S, _AT_ONCE_S = 2.0, 0.5, 0.03
"""Seconds within which an agent is killed after its start, after its first delivery, and after a later one."""
_PATIENCE_S = 10.0
"""Seconds that a delivery is waited for; on a busy machine an agent may take longer to import MLflow."""
_TRAINER = """
import mmap, os, struct, sys, time, otel_rl
step, pause, trackers, burst = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3].split(","), int(sys.argv[4])
run = otel_rl.init(dir="runs", project="kills", id="killed", exporters=trackers, hardware=False, quiet=True)
with open("progress", "r+b") as file:
    progress = mmap.mmap(file.fileno(), 16)
while not os.path.exists("stop"):
    with run.step(step):
        run.log({"loss": step / 8, "who": float(run.attempt)})
        progress[:] = struct.pack("<qq", run.attempt, step)
    step += 1
    time.sleep(pause if step % burst else 250 * pause)  # so that the agent delivers everything now and then
assert run.finish(300), run.dir
"""
_STARTER = """
import os, signal, sys
from importlib import import_module
from pathlib import Path
_, _, run_dir, part, name, modules = sys.argv
for module in ["otel_rl.recorder.agent.process", *modules.split(",")]:
    import_module(module)
from otel_rl.recorder.agent.__main__ import Supervisor
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in sys.stdin:
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os._exit(Supervisor(Path(run_dir), Path(part), name).run())
"""
"""Starts a supervisor for each line that it reads, after importing what agents import: with MLflow, that takes 10 s."""
_IMPORTED = {
    "archive": ("arro3.core", "arro3.io"),
    "tensorboard": ("tensorboard.summary.writer.record_writer", "tensorboard.compat.proto.event_pb2"),
    "mlflow": ("mlflow", "mlflow.store.tracking.sqlalchemy_store"),
}
_AS_TRAINERS_DO = 0.1
"""Part of the agents that are started as a trainer starts them, without the starter."""


class Outcome(NamedTuple):
    """The result of a session of kills.

    Attributes:
        verdicts: The errors found in each tracker.
        moments: How many processes were killed in each moment: "before" the first row that they recorded or delivered,
            "during" that, or "after" all was delivered; by "trainer", or the name of the tracker.
    """

    verdicts: dict[str, Verdict]
    moments: Counter[tuple[str, str]]


def measure(
    *, trainer: int = 200, agent: int = 200, both: int = 100, trackers: Sequence[str] = TRACKERS
) -> list[Table]:
    """Kill processes this many times; return the state of the rows in each tracker, and when the kills happened."""
    rows: list[list[str | float | int | bool | None]] = []
    moments: list[list[str | float | int | bool | None]] = []
    for kind, kills in (("trainer", trainer), ("agent", agent), ("both", both)):
        if not kills:
            continue
        with tempfile.TemporaryDirectory(prefix="otel-rl-kills-") as place:
            outcome = run(kind, kills, Path(place), trackers)
        print(f"{kind} {kills}: {outcome.verdicts} {dict(outcome.moments)}", file=sys.stderr, flush=True)
        rows += [[kind, kills, tracker, *verdict] for tracker, verdict in outcome.verdicts.items()]
        for who in dict.fromkeys(who for who, _ in outcome.moments):
            counts = [outcome.moments[who, moment] for moment in ("before", "during", "after")]
            moments.append([kind, "trainer" if who == "trainer" else "agent", "" if who == "trainer" else who, *counts])
    note = "W&B and SwanLab offline, decoded; MLflow and trackio in SQLite."
    when = (
        "before: it had not recorded or delivered a row since its start; during: rows were left to record or deliver; "
        "after: the exporter had delivered everything. An agent delivers to all trackers at once."
    )
    return [
        Table(
            "SIGKILL at random moments", ["killed", "kills", "tracker", "rows", "lost", "doubled", "torn"], rows, note
        ),
        Table("When the kills came", ["killed", "process", "tracker", "before", "during", "after"], moments, when),
    ]


def run(kind: str, kills: int, place: Path, trackers: Sequence[str] = TRACKERS, *, seed: int = _SEED) -> Outcome:
    """Kill `kind` so often in a run in the directory `place`; return the verdict on each tracker."""
    with Session(place, random.Random(seed), trackers) as session:
        if "mlflow" in trackers:
            session.warm_up()
        {"trainer": session.kill_trainers, "agent": session.kill_agents, "both": session.kill_both}[kind](kills)
        session.finish()
    verdicts = {name: verdict(name, session.directory.path, session.attempts) for name in trackers}
    return Outcome(verdicts, session.moments)


class Session:
    """A run whose processes are killed again and again.

    Attributes:
        attempts: What the trainers recorded.
        moments: How many processes were killed in each moment.
        directory: The run's directory.
    """

    def __init__(self, place: Path, dice: random.Random, trackers: Sequence[str]) -> None:
        self._place = place
        self._dice = dice
        self._trackers = trackers
        self._trainer: subprocess.Popen[bytes] | None = None
        self._starter: subprocess.Popen[bytes] | None = None
        self._first = 0
        self.attempts: list[Attempt] = []
        self.moments: Counter[tuple[str, str]] = Counter()
        self.directory = directories.at(place / "runs" / "kills" / "killed")

    def __enter__(self) -> Session:
        (self._place / "progress").write_bytes(_NOTHING)
        with (self._place / "progress").open("r+b") as file:
            self._progress = mmap.mmap(file.fileno(), 16)
        return self

    def __exit__(self, *_: object) -> None:
        for own in (self._trainer, self._starter):
            if own is not None:
                own.kill()
                own.communicate()
        for process in self._agents():
            _kill(process.pid)
        self._progress.close()

    def warm_up(self) -> None:
        """Record a few rows without a kill: the first one that MLflow gets takes seconds."""
        self._start_trainer(0.01)
        self._wait_for_first_row()
        time.sleep(0.1)
        self.finish()
        (self._place / "stop").unlink()

    def kill_trainers(self, kills: int) -> None:
        """Kill trainers within 50 ms of their first row, or while they start; the agent lives on."""
        for _ in range(kills):
            self._start_trainer(0.001, burst=1000)
            if self._dice.random() < 0.25:
                time.sleep(self._dice.uniform(0, 1))
            else:
                self._wait_for_first_row()
                time.sleep(self._dice.uniform(0, 0.05))
            self._kill_trainer()

    def kill_agents(self, kills: int) -> None:
        """Kill agents at any moment from their start on, while one trainer records.

        The supervisor starts the next one, unless it is killed too.
        """
        self._prepare_starter()
        self._start_trainer(0.002)
        self._wait_for_first_row()
        killed = 0
        while killed < kills:
            self._wait_for_a_moment(self._agent())
            with_supervisor = not killed or self._dice.random() < 0.5
            killed += self._kill_agents(with_supervisor=with_supervisor)
            if with_supervisor:
                self._start_agent()

    def kill_both(self, kills: int) -> None:
        """Kill trainer, agent and supervisor, either of them first, within 0.1 s."""
        self._prepare_starter()
        for _ in range(kills):
            if self._dice.random() >= _AS_TRAINERS_DO:
                self._start_agent()
            self._start_trainer(0.002)
            self._wait_for_first_row()
            self._wait_for_a_moment(self._agent())
            if trainer_first := self._dice.random() < 0.5:
                self._kill_trainer()
            time.sleep(self._dice.uniform(0, 0.1))
            self._kill_agents(with_supervisor=True)
            if not trainer_first:
                time.sleep(self._dice.uniform(0, 0.1))
                self._kill_trainer()

    def finish(self) -> None:
        """End the run in order; everything is delivered then."""
        (self._place / "stop").touch()
        if self._trainer is None:
            self._start_trainer(0)
        assert self._trainer is not None
        if self._trainer.wait(600):
            log = self.directory.agent_log
            raise RuntimeError(f"finish() failed; {log} ends:\n{log.read_text()[-2000:]}")
        self._note_attempt()
        self._trainer = None
        deadline = time.monotonic() + 600
        while self._agents() and time.monotonic() < deadline:  # it has rows of attempts that were killed left
            time.sleep(0.1)

    def _wait_for_a_moment(self, agent: psutil.Process) -> None:
        """Wait for a moment after the agent's start, after its first delivery to a tracker, or inside a later one."""
        kind = self._dice.randrange(3)
        tracker, deadline = self._dice.choice(self._trackers), time.monotonic() + _PATIENCE_S
        if kind == 0:
            time.sleep(max(0.0, agent.create_time() + self._dice.uniform(0, _START_S) - time.time()))
            return
        before = agent.create_time()
        for _ in range(kind):
            while self._delivered_at(tracker) <= before and time.monotonic() < deadline and _is_alive(agent):
                time.sleep(0.002)
            before = self._delivered_at(tracker)
        time.sleep(self._dice.uniform(0, _DELIVER_S if kind == 1 else _AT_ONCE_S))

    def _delivered_at(self, tracker: str) -> float:
        """Return when a tracker's cursor moved last; 0 if it never did."""
        with contextlib.suppress(FileNotFoundError):
            return self._cursor(tracker).stat().st_mtime
        return 0.0

    def _cursor(self, tracker: str) -> Path:
        return self.directory.cursors / f"{tracker}.json"

    def _moment(self, tracker: str, agent: psutil.Process) -> str:
        """Return when an agent that is dead now was killed, as to what it delivered to a tracker."""
        if self._delivered_at(tracker) <= agent.create_time():
            return "before"
        cursor = msgspec.json.decode(self._cursor(tracker).read_bytes(), type=Cursor)
        left = sum(len(one.batch.items) for one in located(self.directory.outbox, BatchHead, cursor.position))
        return "during" if left > cursor.index else "after"

    def _start_trainer(self, pause: float, burst: int = 8) -> None:
        self._progress[:] = _NOTHING
        how = str(self._first), str(pause), ",".join(self._trackers), str(burst)
        self._trainer = self._python("-c", _TRAINER, *how)

    def _wait_for_first_row(self) -> None:
        assert self._trainer is not None
        while struct.unpack("<qq", self._progress[:])[0] < 0:
            if self._trainer.poll() is not None:
                raise RuntimeError(f"the trainer ended with {self._trainer.returncode} before its first row")
            time.sleep(0.001)

    def _kill_trainer(self) -> None:
        assert self._trainer is not None
        self._trainer.kill()
        self._trainer.wait()
        self._trainer = None
        self._note_attempt()
        self.moments["trainer", "before" if self.attempts[-1].number < 0 else "during"] += 1

    def _note_attempt(self) -> None:
        number, last = struct.unpack("<qq", self._progress[:])
        self.attempts.append(Attempt(number, self._first, last if number >= 0 else self._first - 1))
        if number >= 0:
            self._first = max(0, last + 1 - self._dice.randrange(4))  # as from a checkpoint of some steps ago

    def _prepare_starter(self) -> None:
        modules = [name for tracker in self._trackers for name in _IMPORTED.get(tracker, (tracker,))]
        imported = ",".join(one for one in modules if one != "jsonl")
        self._starter = self._python("-c", _STARTER, *self._agent_command, imported)

    def _start_agent(self) -> None:
        """Start a supervisor, as a trainer would a second later."""
        if self._starter is None or self._dice.random() < _AS_TRAINERS_DO:
            self._python(*self._agent_command)
            return
        assert self._starter.stdin is not None
        self._starter.stdin.write(b"\n")
        self._starter.stdin.flush()

    @property
    def _agent_command(self) -> list[str]:
        """The arguments with which a trainer starts the supervisor of its agent."""
        return [str(_PROGRAM), *map(str, self.directory)]

    def _python(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "SWANLAB_MODE": "offline"}
        environment["TRACKIO_DIR"] = str(self.directory.path / "trackio")  # read at the import, which the starter does
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self._place,
            env={**os.environ, **environment, "PYTHONPATH": _path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _agent(self) -> psutil.Process:
        """Wait for the agent that is at work, or starts; return it."""
        deadline = time.monotonic() + 60
        while not (found := [one for one in self._agents() if not _is_supervisor(one)]):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no agent is started; see {self.directory.agent_log}")
            time.sleep(0.01)
        return found[0]

    def _kill_agents(self, *, with_supervisor: bool) -> bool:
        """Kill the agent, and its supervisor first if asked to; note the moment; tell whether there was one."""
        found = self._agents()
        for supervisor in filter(_is_supervisor, found if with_supervisor else ()):
            _kill(supervisor.pid)
        agents = [one for one in found if not _is_supervisor(one)]
        for agent in agents:
            _kill(agent.pid)
        for agent in agents:
            _wait_for(agent)
        for agent in agents[:1]:
            self.moments.update((tracker, self._moment(tracker, agent)) for tracker in self._trackers)
        return bool(agents)

    def _agents(self) -> list[psutil.Process]:
        """Return the agents of this run and their supervisors, whoever started them; those that are dead are not."""
        found = []
        for process in psutil.process_iter():
            if self._starter is not None and process.pid == self._starter.pid:
                continue
            with contextlib.suppress(psutil.Error):
                line = process.cmdline()
                if {str(_PROGRAM), str(self.directory.path)} <= set(line):
                    found.append(process)
        return found


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _is_supervisor(process: psutil.Process) -> bool:
    """Tell a supervisor, which leads a session of its own, from the agent that it starts."""
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(process.pid) == process.pid
    return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 9)


def _wait_for(process: psutil.Process) -> None:
    """Wait until the process is dead, whether its parent has noticed or not."""
    while _is_alive(process):
        time.sleep(0.005)


def _path() -> str:
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
