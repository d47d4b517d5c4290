"""First values that come from several threads at once: they are in one run."""

from __future__ import annotations

import multiprocessing
from functools import partial
from pathlib import Path

import pytest

import otel_rl
from otel_rl.frameworks.recording import Recording
from otel_rl.frameworks.tracker import Tracker
from otel_rl.frameworks.tracker_runs import TRACKER_RUNS
from tests.recorder.trainer.reading import RecordsOf, at_once, begin, kinds, logged, runs_in

_THREADS = 8


def test_first_values_of_a_tracker_at_once(
    tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First values that a tracker gets from several threads are in one run, which ends with the tracker's."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    tracker = Tracker("tensorboard")
    tracked = tracker.run("a run", tracker)
    at_once(*(partial(tracker.record, tracked, {f"x{number}": number}, number) for number in range(_THREADS)))
    run = otel_rl.current()
    assert run is not None
    values = [value for _, value in sorted(logged(records_of(run)))]
    tracker.end(tracked, tracker, ends=True)

    assert values == [{f"x{number}": number} for number in range(_THREADS)]
    assert otel_rl.current() is None
    assert len(runs_in(tmp_path / "runs")) == 1


class _Opens(str):
    """A directory; whoever compares it with another one lets a thread open one more writer."""

    __slots__ = ()

    def __bool__(self) -> bool:
        tracker = Tracker("tensorboard")
        at_once(partial(tracker.run, f"{len(TRACKER_RUNS._runs)}", tracker))
        return True


def test_a_writer_that_opens_while_a_run_begins(
    tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first value of a run is recorded, though another thread opens a writer meanwhile."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    monkeypatch.setattr(TRACKER_RUNS, "_runs", {})
    tracker = Tracker("tensorboard")
    tracker.run("opens", tracker, directory=_Opens("/tb/a"))
    tracked = tracker.run("a run", tracker, directory="/tb/b")
    tracker.record(tracked, {"loss": 1.0}, 0)
    run = otel_rl.current()

    assert run is not None
    assert logged(records_of(run)) == [(0, {"b/loss": 1.0})]


def test_two_loggers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers that begin in two threads record one training into one run, which one of them owns."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    recordings = at_once(*[Recording] * _THREADS)

    assert {recording.run for recording in recordings} == {otel_rl.current()}  # type: ignore[attr-defined]
    assert [recording._own for recording in recordings].count(True) == 1  # type: ignore[attr-defined]


def test_a_run_and_a_logger_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A logger that begins while `init` runs records into the run of `init`, or `init` says that there is one."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    monkeypatch.setenv("OTEL_RL_DIR", str(tmp_path))
    found, recording = at_once(partial(begin, tmp_path, name="mine"), Recording)
    run = otel_rl.current()

    assert isinstance(recording, Recording)
    assert recording.run is run
    assert found is run or "is being recorded in this process" in str(found)
    assert len(runs_in(tmp_path)) == 1


def test_a_tracker_in_a_forked_worker(tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's values for the tracker are in the run of its parent; the worker begins none."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    tracker = Tracker("tensorboard")
    tracked = tracker.run("a run", tracker)
    tracker.record(tracked, {"loss": 1.0}, 0)
    worker = multiprocessing.get_context("fork").Process(target=tracker.record, args=(tracked, {"score": 2.0}, 1))
    worker.start()
    worker.join()
    run = otel_rl.current()

    assert run is not None
    assert logged(records_of(run, "worker")) == [(1, {"score": 2.0})]
    assert len(runs_in(tmp_path / "runs")) == 1


def test_a_call_without_numbers_in_a_forked_worker(
    tmp_path: Path, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is refused of a call that has no step and no number, as `add_hparams` without metrics."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    tracker = Tracker("tensorboard")
    tracked = tracker.run("a run", tracker)
    tracker.record(tracked, {"loss": 1.0}, 0)

    def work() -> None:
        tracker.record(tracked, {}, 0, own=True)
        tracker.record(tracked, {"score": 2.0}, 1)

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
    run = otel_rl.current()

    assert run is not None
    assert kinds(records_of(run, "worker")) == ["Started", "Logged", "Finished"]
