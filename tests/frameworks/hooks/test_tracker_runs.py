"""The owner of a captured value: two runs, two writers, two trackers, and every value still in its place."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import otel_rl
from otel_rl.frameworks.tracker import Tracker
from otel_rl.frameworks.tracker_run import TrackerRun
from otel_rl.frameworks.tracker_runs import TRACKER_RUNS
from otel_rl.recorder.journal.records import Configured, Logged
from otel_rl.recorder.trainer.current import recorder_of
from otel_rl.recorder.trainer.run import Run
from tests.recorder.trainer.reading import RecordsOf

Values = dict[str, list[tuple[int, float]]]


class User:
    """An object that logs to a run of a tracker: a writer, or the tracker's own one."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Configure the runs that trackers begin; return the directory of their project."""
    for name, value in {"DIR": str(tmp_path), "PROJECT": "p", "AGENT": "off", "QUIET": "1", "EXPORTERS": ""}.items():
        monkeypatch.setenv(f"OTEL_RL_{name}", value)
    monkeypatch.setattr(TRACKER_RUNS, "_runs", {})
    monkeypatch.setattr(TRACKER_RUNS, "_homes", [])
    yield tmp_path / "p"
    while (left := otel_rl.current()) is not None:
        left.finish(0)


@pytest.fixture
def read(records_of: RecordsOf) -> Callable[[Run], Values]:
    """Return a function that reads the values of a run, by name."""

    def of(run: Run) -> Values:
        values: Values = {}
        for record in records_of(run):
            if isinstance(record, Logged):
                for name, value in record.values.items():
                    values.setdefault(name, []).append((record.step, float(value)))
        return values

    return of


def run_of(run: TrackerRun) -> Run:
    """Return the run of otel-rl that records a tracker's run."""
    assert run.home is not None
    return run.home.run


def writer(directory: str, user: object) -> TrackerRun:
    """Return the run of a TensorBoard writer."""
    return Tracker("tensorboard").run(directory, user, name=directory, directory=directory)


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("/tb/train", "/tb/val", ("train/x", "val/x")),
        ("/tb", "/tb/eval", ("x", "eval/x")),
        ("/tb/eval", "/tb", ("eval/x", "x")),
        ("/a/train/exp1", "/a/val/exp1", ("train/exp1/x", "val/exp1/x")),
        ("s3://bucket/run/actor", "s3://bucket/run/critic", ("actor/x", "critic/x")),
    ],
)
def test_two_writers_of_one_training(
    first: str, second: str, names: tuple[str, str], read: Callable[[Run], Values]
) -> None:
    """They are one run. Their directories tell their names apart, as in TensorBoard."""
    tracker, users = Tracker("tensorboard"), (User(), User())
    runs = writer(first, users[0]), writer(second, users[1])
    for number, run in enumerate(runs):
        tracker.record(run, {"x": float(number)}, 0)

    assert run_of(runs[0]) is run_of(runs[1])
    assert read(run_of(runs[0])) == {name: [(0, float(number))] for number, name in enumerate(names)}


def test_a_writer_that_comes_later(read: Callable[[Run], Values]) -> None:
    """The first one keeps its names."""
    tracker, users = Tracker("tensorboard"), (User(), User())
    tracker.record(first := writer("/tb/train", users[0]), {"x": 1.0}, 0)
    tracker.record(writer("/tb/val", users[1]), {"x": 3.0}, 0)
    tracker.record(first, {"x": 2.0}, 1)

    assert read(run_of(first)) == {"x": [(0, 1.0), (1, 2.0)], "val/x": [(0, 3.0)]}


def test_a_name_that_two_writers_make(read: Callable[[Run], Values]) -> None:
    """`val/x` of the outer directory and `x` of the inner one are two curves."""
    tracker, users = Tracker("tensorboard"), (User(), User())
    outer, inner = writer("/tb", users[0]), writer("/tb/val", users[1])
    tracker.record(outer, {"val/x": 1.0}, 0)
    tracker.record(inner, {"x": 3.0}, 0)

    assert sorted(read(run_of(outer)).values()) == [[(0, 1.0)], [(0, 3.0)]]


@pytest.mark.parametrize(("first", "second"), [("/tb/trial0", "/tb/trial1"), ("/tb/lr=0.1", "/tb/lr=0.01")])
def test_writers_of_two_trials_at_once(first: str, second: str, read: Callable[[Run], Values]) -> None:
    """Each is a run, though both are open: the numbers in their directories differ."""
    tracker, users = Tracker("tensorboard"), (User(), User())
    runs = writer(first, users[0]), writer(second, users[1])
    for step in range(2):
        for number, run in enumerate(runs):
            tracker.record(run, {"x": float(number)}, step)

    assert [read(run_of(run)) for run in runs] == [{"x": [(0, float(n)), (1, float(n))]} for n in (0, 1)]
    assert [run_of(run)._session.settings.name for run in runs] == [Path(first).name, Path(second).name]


@pytest.mark.parametrize("closes", [True, False])
def test_writers_of_trials_one_after_the_other(closes: bool, read: Callable[[Run], Values]) -> None:
    """Each is a run, whether the script closes its writer or only drops it."""
    tracker, values = Tracker("tensorboard"), []
    for trial in ("/tb/ppo", "/tb/dqn"):
        user = User()
        tracker.record(run := writer(trial, user), {"x": 1.0}, 0)
        values.append(read(run_of(run)))
        if closes:
            tracker.end(run, user)
        del user
        gc.collect()

    assert values == [{"x": [(0, 1.0)]}, {"x": [(0, 1.0)]}]


def test_a_writer_that_is_opened_again(read: Callable[[Run], Values]) -> None:
    """One directory is one curve."""
    tracker = Tracker("tensorboard")
    for step in range(3):
        user = User()
        tracker.record(run := writer("/tb/a", user), {"x": 1.0}, step)
        tracker.end(run, user)

    assert read(run_of(run)) == {"x": [(0, 1.0), (1, 1.0), (2, 1.0)]}


def test_runs_at_once(read: Callable[[Run], Values]) -> None:
    """Each value is in its own, and the end of one ends nothing of the other."""
    tracker, users = Tracker("wandb"), (User(), User())
    runs = [tracker.run(name, user, name=name) for name, user in zip("ab", users, strict=True)]
    for number, run in enumerate(runs):
        tracker.record(run, {"x": float(number)}, 0)
    first, second = map(run_of, runs)
    tracker.end(runs[0], users[0], ends=True)
    tracker.record(runs[1], {"x": 2.0}, 1)

    assert (read(first), read(second)) == ({"x": [(0, 0.0)]}, {"x": [(0, 1.0), (1, 2.0)]})
    assert otel_rl.current() is second


def test_a_run_that_goes_on_after_its_end(read: Callable[[Run], Values]) -> None:
    """It is another attempt if its steps go on; earlier steps are a run of their own, so that no row is void."""
    tracker, users = Tracker("mlflow"), (User(), User())
    run = tracker.run("a", users[0])
    tracker.record(run, {"x": 1.0}, 5)
    first = run_of(run)
    tracker.end(run, users[0], ends=True)
    tracker.record(run, {"x": 2.0}, 6)
    second = run_of(run)
    second.finish(0)
    tracker.record(run, {"best": 2.0}, 0)

    assert (first.id, first.attempt) == (second.id, second.attempt - 1)
    assert run_of(run).id != first.id


def test_runs_of_a_tracker_inside_a_run_of_the_script(read: Callable[[Run], Values]) -> None:
    """All are in it. The later ones have their name in front, with a number if another one has it."""
    tracker, users = Tracker("wandb"), [User() for _ in range(4)]
    with otel_rl.init() as present:
        for name, user in zip("abbb", users, strict=True):
            tracker.record(tracker.run(f"{id(user)}", user, name=name), {"x": 1.0}, 0)
    assert read(present) == {name: [(0, 1.0)] for name in ("x", "b/x", "b-2/x", "b-3/x")}


@pytest.mark.parametrize(
    ("second", "names"),
    [((0, 1.0), ["x"]), ((0, 2.0), ["tensorboard/x", "x"]), ((7, 1.0), ["tensorboard/x", "x"])],
)
def test_two_trackers(second: tuple[int, float], names: list[str], read: Callable[[Run], Values]) -> None:
    """They are one run. Equal values are one value; others have the name of the tracker that came second."""
    users = User(), User()
    wandb, tensorboard = Tracker("wandb"), Tracker("tensorboard")
    wandb.record(run := wandb.run("a", users[0]), {"x": 1.0}, 0)
    step, value = second
    tensorboard.record(writer("/tb/b", users[1]), {"x": value}, step)

    assert sorted(read(run_of(run))) == names


def test_runs_of_threads(read: Callable[[Run], Values]) -> None:
    """First values at once, of several runs: each run is one, and has all its values."""
    tracker, users = Tracker("mlflow"), [User() for _ in range(3)]
    runs = [tracker.run(f"{number}", user) for number, user in enumerate(users)]
    barrier = threading.Barrier(6)

    def log(number: int) -> None:
        barrier.wait()
        tracker.record(runs[number % 3], {f"x{number // 3}": 1.0}, 0)

    threads = [threading.Thread(target=log, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [sorted(read(run_of(run))) for run in runs] == [["x0", "x1"]] * 3
    assert len({run_of(run).id for run in runs}) == 3


def test_a_forked_child_logs_to_the_run_of_its_parent() -> None:
    """A value with a step is recorded, one at the copied counter of the tracker is refused; it may begin runs."""
    tracker, users = Tracker("wandb"), (User(), User())
    run = tracker.run("a", users[0])
    tracker.record(run, {"x": 1.0}, 0, own=True)
    if not (child := os.fork()):
        tracker.record(run, {"x": 2.0}, 1, own=True)
        refused = run_of(run)._recorder.refused
        tracker.record(run, {"x": 3.0}, 7)
        tracker.record(own := tracker.run("b", users[1]), {"x": 3.0}, 0, own=True)
        is_worker = run_of(run)._session.settings.role == "worker"
        os._exit(0 if refused == {"not_captured": 1} and is_worker and run_of(own) is not run_of(run) else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_opens_a_directory_again() -> None:
    """It begins a run if that of the parent has ended; the parent's own writer has none there."""
    tracker, users = Tracker("tensorboard"), (User(), User())
    run = writer("/tb/trial1", users[0])
    tracker.record(run, {"x": 1.0}, 0)
    run_of(run).finish(0)
    if not (child := os.fork()):
        tracker.record(run, {"x": 2.0}, 1)
        again = writer("/tb/trial1", users[1])
        tracker.record(again, {"x": 3.0}, 2)
        os._exit(0 if run.home is None and run_of(again) is otel_rl.current() else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_a_summary_is_in_the_last_row(read: Callable[[Run], Values]) -> None:
    """Under its name, unless that is the name of a curve."""
    tracker, user = Tracker("wandb"), User()
    run = tracker.run("a", user)
    tracker.record(run, {"x": 1.0}, 3)
    tracker.summarize(run, {"x": 9.0, "best": 2.0})

    assert read(run_of(run)) == {"x": [(3, 1.0)], "summary/x": [(3, 9.0)], "best": [(3, 2.0)]}


def test_parameters(records_of: RecordsOf) -> None:
    """Those from before the first number, and later ones."""
    tracker, user = Tracker("wandb"), User()
    run = tracker.run("a", user)
    run.params({"lr": 0.1})
    tracker.record(run, {"x": 1.0}, 0)
    run.params({"seed": 3})

    assert [each.values for each in records_of(run_of(run)) if isinstance(each, Configured)] == [
        {"lr": 0.1},
        {"seed": 3},
    ]


def test_a_step_that_a_row_cannot_have() -> None:
    """It is counted with its name."""
    tracker, user = Tracker("tensorboard"), User()
    run = tracker.run("a", user)
    tracker.record(run, {"x": 1.0}, -1)

    assert recorder_of(run_of(run)).refused == {"not_captured": 1}


def test_another_name_of_a_run(records_of: RecordsOf) -> None:
    """Before the first number it is the run's name, later a parameter."""
    tracker, user = Tracker("wandb"), User()
    tracker.run("a", user, name="first")
    tracker.record(run := tracker.run("a", user, name="second"), {"x": 1.0}, 0)
    tracker.run("a", user, name="third")

    assert run_of(run)._session.settings.name == "second"
    assert [each.values for each in records_of(run_of(run)) if isinstance(each, Configured)] == [
        {"wandb.name": "third"}
    ]


def test_texts_before_the_first_number() -> None:
    """They are counted when the run begins, at most 64 of them."""
    tracker, user = Tracker("wandb"), User()
    run = tracker.run("a", user)
    tracker.record(run, {"note": "text"}, 0)
    for _ in range(100):
        tracker.not_captured(run, "picture", "image")
    tracker.record(run, {"x": 1.0}, 0)

    assert recorder_of(run_of(run)).refused == {"not_captured": 64}


@pytest.mark.parametrize("others", [0, 1])
def test_a_run_whose_later_values_are_removed(others: int) -> None:
    """It goes on as another attempt, but not if that would remove values of other runs."""
    tracker, users = Tracker("tensorboard"), (User(), User())
    runs = writer("/tb/train", users[0]), writer("/tb/val", users[1])
    for run in runs[: 1 + others]:
        tracker.record(run, {"x": 1.0}, 5)
    TRACKER_RUNS.repeat(runs[0])
    tracker.record(runs[0], {"x": 2.0}, 3)

    assert run_of(runs[0]).attempt == 1 - others


def test_calls_of_threads_are_counted() -> None:
    """Each has a step of its own, though all see the tracker's counter at one value; explicit steps are kept."""
    tracker, user = Tracker("trackio"), User()
    count = partial(tracker.count, tracker.run("a", user), user)

    assert [count(step, 7) for step in (None, None, 3, 20, None)] == [7, 8, 3, 20, 21]
    assert [count(None, 0, stays=stays) for stays in (True, True, False, False)] == [22, 22, 22, 23]
    assert count(-1, 0) == -1
