"""Forked children of a process that records: the values of each are in a journal of its own, as a worker's."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest
import torch

import otel_rl
from otel_rl import Run
from otel_rl.export import Event
from otel_rl.recorder.trainer.current import is_open
from otel_rl.recorder.trainer.start import init_beside
from tests.collector import wait_for
from tests.processes import items_of, local_of, rows_of, run_python
from tests.recorder.trainer.reading import RecordsOf, begin, kinds, logged, refusals, started

_FORK = multiprocessing.get_context("fork")


def in_child(function: object, *given: object) -> None:
    """Call a function in a forked child of `multiprocessing`; it must not raise."""
    child = _FORK.Process(target=function, args=given)  # type: ignore[arg-type]
    child.start()
    child.join()
    assert child.exitcode == 0


def workers(run: Run) -> list[str]:
    """Return the labels of the journals that are not of ranks."""
    names = (path.name.partition(".")[0] for path in (local_of(run.dir) / "journals").iterdir())
    return sorted(name for name in names if not name.startswith("rank"))


def evaluate(number: int) -> None:
    run = otel_rl.current()
    assert run is not None
    with run.phase("evaluate"):
        run.log({"score": float(number), "loss": torch.tensor(0.5)}, step=number)


def test_a_pool(recording: Run, records_of: RecordsOf) -> None:
    """Values of the workers of a pool are recorded once, with the phase around them; the parent has its own."""
    recording.log({"loss": 1.0}, step=0)
    with _FORK.Pool(2) as pool:
        pool.map(evaluate, range(6), chunksize=1)
    recording.log({"loss": 2.0}, step=1)
    records = {name: records_of(recording, name) for name in workers(recording)}
    found = [value for name in records for value in logged(records[name]) if "score" in value[1]]

    assert sorted(found) == [(number, {"score": float(number), "loss": 0.5}) for number in range(6)]
    assert {kind for name in records for kind in kinds(records[name])[:2]} == {"Started", "SpanStarted"}
    assert logged(records_of(recording)) == [(0, {"loss": 1.0}), (1, {"loss": 2.0})]


def idle(run: Run) -> None:
    with run.phase("idle"):
        pass
    assert not run.finish()


def test_a_child_that_logs_nothing(recording: Run) -> None:
    """Phases, and an end, begin no journal: a loader's workers cost nothing."""
    with recording.step(0):
        in_child(idle, recording)

    assert workers(recording) == []
    assert otel_rl.current() is recording


def log_here(run: Run) -> None:
    with run.phase("inner"):
        run.log({"x": 1.0})


def test_the_step_and_the_span_of_the_parent(recording: Run, records_of: RecordsOf) -> None:
    """A value without a step belongs to the step that is open in the parent, and a phase hangs below its phase."""
    with recording.step(3), recording.phase("outer"):
        in_child(log_here, recording)
    parent, child = records_of(recording), records_of(recording, "worker")

    assert logged(child) == [(3, {"x": 1.0})]
    assert started(child)["inner"].parent_id == started(parent)["outer"].span_id
    assert kinds(child) == ["Started", "SpanStarted", "Logged", "SpanEnded", "Finished"]
    assert kinds(parent) == ["Started", "StepStarted", "SpanStarted", "SpanEnded", "StepEnded"]


def test_a_grandchild(recording: Run, records_of: RecordsOf) -> None:
    """A child of a child has a journal of its own."""

    def child() -> None:
        recording.log({"of": 1}, step=0)
        grandchild = _FORK.Process(target=lambda: recording.log({"of": 2}, step=0))
        grandchild.start()
        grandchild.join()
        recording.log({"of": 3}, step=1)

    in_child(child)

    assert workers(recording) == ["worker", "worker1"]
    assert logged(records_of(recording, "worker")) == [(0, {"of": 1}), (1, {"of": 3})]
    assert logged(records_of(recording, "worker1")) == [(0, {"of": 2})]


def test_first_values_from_several_threads(recording: Run, records_of: RecordsOf) -> None:
    """The child begins one journal, whichever of its threads logs first."""

    def child() -> None:
        threads = [threading.Thread(target=recording.log, args=({f"x{n}": n},), kwargs={"step": n}) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    in_child(child)

    assert workers(recording) == ["worker"]
    assert sorted(logged(records_of(recording, "worker"))) == [(n, {f"x{n}": n}) for n in range(8)]


def test_a_fork_in_a_thread_while_another_one_logs(recording: Run, records_of: RecordsOf) -> None:
    """The child of a thread records, too, and nothing of the parent is lost."""
    thread = threading.Thread(target=in_child, args=(log_at, recording, 7))
    thread.start()
    for number in range(200):
        recording.log({"loss": float(number)}, step=number)
    thread.join()

    assert logged(records_of(recording, "worker")) == [(7, {"x": 7})]
    assert len(logged(records_of(recording))) == 200


def log_at(run: Run, step: int) -> None:
    run.log({"x": step}, step=step)


def test_refused_calls(recording: Run, records_of: RecordsOf) -> None:
    """A child counts its own refused calls, not again those of its parent."""
    recording.log({"a": object()}, step=0)
    in_child(lambda: recording.log({"b": object()}, step=0))

    assert refusals(records_of(recording, "worker")) == {"value": 1}
    assert recording.refused == {"value": 1}


def test_init_in_a_child(tmp_path: Path, records_of: RecordsOf) -> None:
    """`init` as in the parent returns its run; with other keywords the child has a run of its own."""
    run = begin(tmp_path, id="of-parent")

    def child() -> None:
        assert begin(tmp_path, id="of-parent") is otel_rl.init() is run
        other = begin(tmp_path, id="of-child")
        other.log({"x": 1}, step=0)
        assert otel_rl.current() is other
        other.finish(0)

    in_child(child)

    assert otel_rl.current() is run
    assert workers(run) == []
    assert {path.name for path in run.dir.parent.iterdir()} == {"of-parent", "of-child"}


def test_several_runs(recording: Run, tmp_path: Path, records_of: RecordsOf) -> None:
    """Each of the runs that the parent has open is there, and has its own values."""
    beside = init_beside(id="other", dir=str(tmp_path / "other"), agent="off", exporters=[], quiet=True)

    def child() -> None:
        assert (otel_rl.current(), is_open(beside)) == (recording, True)
        recording.log({"of": 1}, step=0)
        beside.log({"of": 2}, step=0)

    in_child(child)

    assert logged(records_of(recording, "worker")) == [(0, {"of": 1})]
    assert logged(records_of(beside, "worker")) == [(0, {"of": 2})]
    beside.finish(0)


_NO_ROOM = """
import os, shutil, otel_rl
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", id="run-7", dir="runs")
if (child := os.fork()) == 0:
    def full(*_, **__):
        raise OSError(28, "No space left on device")
    os.mkdir = full
    run.log({"a": 1}, step=0)
    run.log({"a": 2}, step=1)
    print(run.refused, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_no_room_for_a_journal(tmp_path: Path) -> None:
    """A child that cannot begin a journal counts what it logs as not recorded."""
    assert run_python(_NO_ROOM, tmp_path) == "{'record': 2}\n"


_DELIVERED = """
import multiprocessing, os, otel_rl
run = otel_rl.init(exporters=["jsonl"], quiet=True, hardware=False, project="test", id="run-7", dir="runs")
def work(number):
    run.log({"score": float(number)}, step=number)
if __name__ == "__main__":
    run.log({"loss": 1.0}, step=0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(work, range(4))
    if (child := os.fork()) == 0:
        run.log({"score": 4.0}, step=4)
        os._exit(0)
    os.waitpid(child, 0)
    print(bool(run.finish(60)))
"""


@pytest.mark.slow
def test_rows_of_children(tmp_path: Path) -> None:
    """Values of children are in the rows of the run, and no worker that a pool ended counts as dead."""
    place = tmp_path / "runs" / "test" / "run-7"

    assert run_python(_DELIVERED, tmp_path) == "True\n"
    wait_for(lambda: len(scores(place)) == 5, "a value of a child is missing")
    assert scores(place) == {number: float(number) for number in range(5)}
    assert [item for item in items_of(place) if isinstance(item, Event)] == []


def scores(run: Path) -> dict[int, float]:
    rows = [(row["step"], row["values"]) for row in rows_of(run)]
    return {step: values["score"] for step, values in rows if "score" in values}  # type: ignore[operator,index,misc]
