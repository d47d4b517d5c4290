"""Children that are forked before the first value of a tracker's run: what they log is in the run of their parent."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl.frameworks.tracker import Tracker
from otel_rl.frameworks.tracker_run import TrackerRun
from otel_rl.frameworks.tracker_runs import TRACKER_RUNS
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import Logged
from otel_rl.recorder.trainer.run import Run
from tests.processes import run
from tests.real_parts import needs
from tests.recorder.trainer.reading import runs_in

_FORK = multiprocessing.get_context("fork")
_TRACKER = Tracker("wandb")
Call = Callable[[Callable[[], object]], None]


class User:
    """An object that logs to a run of a tracker: a writer, or the tracker's own one."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Configure the runs that trackers begin; return their directory."""
    for name, value in {"DIR": str(tmp_path / "runs"), "AGENT": "off", "QUIET": "1", "EXPORTERS": ""}.items():
        monkeypatch.setenv(f"OTEL_RL_{name}", value)
    monkeypatch.setattr(TRACKER_RUNS, "_runs", {})
    monkeypatch.setattr(TRACKER_RUNS, "_homes", [])
    yield tmp_path / "runs"
    while (left := otel_rl.current()) is not None:
        left.finish(0)


def in_process(work: Callable[[], object]) -> None:
    """Call a function in a forked child of `multiprocessing`."""
    child = _FORK.Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0


@contextlib.contextmanager
def forked_before(work: Callable[[], object]) -> Iterator[None]:
    """Fork a child before the block, which calls a function behind it."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.read(reads, 1)
        work()
        os._exit(0)
    yield
    os.write(writes, b".")
    assert os.waitpid(child, 0)[1] == 0


def in_fork(work: Callable[[], object]) -> None:
    """Call a function in a child of `os.fork`."""
    if (child := os.fork()) == 0:
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def nested(work: Callable[[], object]) -> None:
    """Call a function in a child of a child."""
    in_process(lambda: in_process(work))


def run_of(source: TrackerRun) -> Run:
    """Return the run that records a tracker's run in this process."""
    assert source.home is not None
    return source.home.run


def values(place: Path) -> dict[str, list[tuple[str, str, int | None, float]]]:
    """Return the process, the name, the step and the value of all points of each run, by the run's name."""
    found: dict[str, list[tuple[str, str, int | None, float]]] = {}
    for directory in runs_in(place):
        points = found.setdefault(json.loads((directory / "run.json").read_bytes())["name"], [])
        for journal in directory.rglob("journals/*.attempt*"):
            reader = Reader(journal, Logged)
            who = journal.name.partition(".")[0]
            while records := reader.read():
                points += [(who, name, one.step, value) for one in records for name, value in one.values.items()]
            reader.close()
        points.sort()
    return found


def log(source: TrackerRun, value: float, step: int, *, own: bool = False) -> Callable[[], None]:
    """Return a function that logs a value; if it is `own`, at a count of calls."""

    def call() -> None:
        at = _TRACKER.count(source, source, None, step) if own else step
        _TRACKER.record(source, {"x": value}, at, own=own)

    return call


@pytest.mark.parametrize("call", [in_process, in_fork, nested])
def test_a_child_that_logs_first(call: Call, place: Path) -> None:
    """It begins the run, as a worker; the parent joins it, under the name and project of the tracker."""
    user = User()
    source = _TRACKER.run("a", user, name="mine", project="p")
    call(log(source, 1.0, 0))
    call(log(source, 2.0, 1))
    log(source, 3.0, 2)()

    assert values(place) == {"mine": [("rank0", "x", 2, 3.0), ("worker", "x", 0, 1.0), ("worker", "x", 1, 2.0)]}
    assert [path.parent.name for path in runs_in(place)] == ["p"]
    assert run_of(source).attempt == 0


def test_children_alone(place: Path) -> None:
    """Their values are in one run, though the parent has none."""
    user = User()
    source = _TRACKER.run("a", user, name="mine")
    for number in range(2):
        in_process(log(source, float(number), number))

    assert values(place) == {"mine": [("worker", "x", 0, 0.0), ("worker", "x", 1, 1.0)]}
    assert otel_rl.current() is None


def test_a_child_whose_parent_logs_first(place: Path) -> None:
    """It joins the run that its parent has begun since the fork."""
    user = User()
    source = _TRACKER.run("a", user, name="mine")
    with forked_before(log(source, 2.0, 1)):
        log(source, 1.0, 0)()

    assert values(place) == {"mine": [("rank0", "x", 0, 1.0), ("worker", "x", 1, 2.0)]}


def test_a_parent_that_calls_init_later(place: Path) -> None:
    """Its run records the tracker; children join it from its first value on."""
    user = User()
    source = _TRACKER.run("a", user, name="mine")
    with forked_before(log(source, 2.0, 1)):
        otel_rl.init(project="other", name="theirs")
        log(source, 1.0, 0)()

    assert values(place) == {"theirs": [("rank0", "x", 0, 1.0), ("worker", "x", 1, 2.0)]}


@pytest.mark.parametrize("has_values", [False, True])
def test_init_after_children_have_logged(has_values: bool, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It begins its own run; one line says so if children have logged to the tracker before."""
    user = User()
    source = _TRACKER.run("a", user, name="mine")
    in_process(log(source, 1.0, 0) if has_values else bool)
    otel_rl.init(project="other", name="theirs")
    log(source, 2.0, 1)()

    assert values(place)["theirs"] == [("rank0", "x", 1, 2.0)]
    assert ["call init() before they start" in record.getMessage() for record in caplog.records] == [True] * has_values


def test_calls_without_a_step(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The process that logs first counts them, and its parent counts on; other children refuse them, with a line."""
    user = User()
    source = _TRACKER.run("a", user, name="mine")
    in_process(log(source, 1.0, 0, own=True))
    in_process(log(source, 2.0, 0, own=True))
    log(source, 3.0, 0, own=True)()

    assert values(place) == {"mine": [("rank0", "x", 2, 3.0), ("worker", "x", 0, 1.0)]}


def test_two_directories(place: Path) -> None:
    """Writers that were open at the fork are in one run, whichever process logs first."""
    users = User(), User()
    train, val = (
        _TRACKER.run(f"/tb/{name}", user, directory=f"/tb/{name}")
        for name, user in zip(("train", "val"), users, strict=True)
    )
    in_process(log(val, 1.0, 0))
    in_process(log(train, 2.0, 0))
    log(val, 3.0, 1)()
    log(train, 4.0, 1)()
    names = [(name, value) for points in values(place).values() for _, name, _, value in points]

    assert len(values(place)) == 1
    assert sorted(names) == [("train/x", 2.0), ("train/x", 4.0), ("val/x", 1.0), ("val/x", 3.0)]


def test_a_directory_that_is_opened_later(place: Path) -> None:
    """Its values are in the run that a child has begun for a directory that it is shown with."""
    users = User(), User()
    train = _TRACKER.run("/tb/train", users[0], directory="/tb/train")
    in_process(log(train, 1.0, 0))
    val = _TRACKER.run("/tb/val", users[1], directory="/tb/val")
    log(val, 2.0, 0)()
    log(train, 3.0, 1)()
    ((*points,),) = values(place).values()

    assert sorted(value for _, _, _, value in points) == [1.0, 2.0, 3.0]


def test_a_name_that_is_given_after_the_fork(place: Path) -> None:
    """It is the name of the run, if no child has begun it."""
    user = User()
    source = _TRACKER.run("a", user, name="first")
    in_process(bool)
    source.rename("mine")
    log(source, 1.0, 0)()

    assert [*values(place)] == ["mine"]


def test_two_trackers(place: Path) -> None:
    """Each counts its own calls, though both are in one run."""
    users, other = (User(), User()), Tracker("trackio")
    first, second = _TRACKER.run("a", users[0], name="mine"), other.run("b", users[1])
    in_process(log(first, 1.0, 0, own=True))
    log(first, 2.0, 0, own=True)()
    other.record(second, {"y": 3.0}, other.count(second, users[1], None, 0), own=True)

    assert values(place) == {
        "mine": [("rank0", "x", 1, 2.0), ("rank0", "y", 0, 3.0), ("worker", "x", 0, 1.0)],
    }


def test_a_second_tracker_after_the_run_of_the_first(place: Path) -> None:
    """Its values are in one run too, though the run that both would have had has ended."""
    users, other = (User(), User()), Tracker("trackio")
    first, second = _TRACKER.run("a", users[0], name="first"), other.run("b", users[1], name="second")
    in_process(bool)
    log(first, 1.0, 0)()
    _TRACKER.end(first, users[0], ends=True)
    in_process(lambda: other.record(second, {"y": 2.0}, 0))
    other.record(second, {"y": 3.0}, 1)

    assert values(place) == {
        "first": [("rank0", "x", 0, 1.0)],
        "second": [("rank0", "y", 1, 3.0), ("worker", "y", 0, 2.0)],
    }


def test_two_runs(place: Path) -> None:
    """Each of two runs that are open at once has its own values."""
    users = User(), User()
    first, second = (_TRACKER.run(name, user) for name, user in zip("ab", users, strict=True))
    in_process(log(second, 2.0, 0))
    log(first, 1.0, 0)()
    log(second, 3.0, 1)()

    assert values(place) == {
        "a": [("rank0", "x", 0, 1.0)],
        "b": [("rank0", "x", 1, 3.0), ("worker", "x", 0, 2.0)],
    }


def test_a_run_of_the_child(place: Path) -> None:
    """A run that a child opens itself is its own, and not that of its parent."""
    user = User()
    source = _TRACKER.run("a", user, name="mine")

    def work() -> None:
        mine = User()
        log(_TRACKER.run("b", mine, name="child's"), 1.0, 0)()

    in_process(work)
    log(source, 2.0, 0)()

    assert values(place) == {"mine": [("rank0", "x", 0, 2.0)], "child's": [("rank0", "x", 0, 1.0)]}


def test_the_identity_of_a_launcher(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of a rank takes no rank's place in the run of all ranks."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}.items():
        monkeypatch.setenv(name, value)
    user = User()
    source = _TRACKER.run("a", user, name="mine")
    in_process(log(source, 1.0, 0))
    log(source, 2.0, 1)()

    assert values(place) == {"mine": [("rank1", "x", 1, 2.0), ("worker1", "x", 0, 1.0)]}


_PROGRAMS = {
    "wandb": """
import multiprocessing, os, wandb
run = wandb.init(project="p", name="mine", dir=os.getcwd(), config={"lr": 0.1})
def work(n): wandb.log({"x": 1.0 * n}, step=n)
with multiprocessing.get_context("fork").Pool(2) as pool: pool.map(work, range(1, 5), chunksize=1)
for n in (5, 6): wandb.log({"x": 1.0 * n}, step=n)
wandb.finish()
""",
    "tensorboard": """
from torch.utils.data import DataLoader, Dataset
from torch.utils.tensorboard import SummaryWriter
class Samples(Dataset):
    def __len__(self): return 4
    def __getitem__(self, n):
        with SummaryWriter("tb/mine") as writer: writer.add_scalar("x", n + 1.0, n + 1)
        return n
writer = SummaryWriter("tb/mine")
for _ in DataLoader(Samples(), num_workers=2, multiprocessing_context="fork"): pass
for n in (5, 6): writer.add_scalar("x", 1.0 * n, n)
writer.close()
""",
    "mlflow": """
import mlflow, os
client = mlflow.MlflowClient("sqlite:///ml.db")
run = client.create_run(client.create_experiment("p"), run_name="mine").info.run_id
for n in range(1, 5):
    if os.fork() == 0:
        client.log_metric(run, "x", 1.0 * n, step=n); os._exit(0)
    os.wait()
for n in (5, 6): client.log_metric(run, "x", 1.0 * n, step=n)
client.set_terminated(run)
""",
}


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("tracker", [pytest.param(name, marks=needs(name)) for name in _PROGRAMS])
def test_real_trackers(tracker: str, tmp_path: Path, place: Path) -> None:
    """Workers of a Pool and of a DataLoader, and children of `os.fork`, log to the run of their parent."""
    train = [sys.executable, "train.py"]
    (tmp_path / train[1]).write_text(_PROGRAMS[tracker])
    settings = {"OTEL_RL_DIR": str(place), "OTEL_RL_AGENT": "off", "WANDB_MODE": "offline", "HOME": str(tmp_path)}
    run([sys.executable, "-m", "otel_rl.cli", "run", "--capture", tracker, "--", *train], tmp_path, **settings)
    (points,) = values(place).values()

    assert sorted((step, value) for _, _, step, value in points) == [(n, 1.0 * n) for n in range(1, 7)]
