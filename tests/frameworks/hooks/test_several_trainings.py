"""Several trainings in one script: SFT, then DPO, then SFT, each of which counts its steps from the beginning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl import semconv
from otel_rl.frameworks.recording import Recording
from otel_rl.frameworks.trainings import elsewhere
from otel_rl.recorder.trainer.current import steps_of
from otel_rl.recorder.trainer.run import Run
from otel_rl.semconv.vocabulary import Vocabulary
from tests.processes import rows_of


def losses(path: Path) -> list[float]:
    """Return the valid history of a run."""
    return list(otel_rl.open_run(path).rows("loss")["value"])


def train(run: Run, offset: float, *steps: int) -> None:
    """Record a value at each of the steps."""
    for n in steps:
        with run.step(n):
            run.log({"loss": offset + n})


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Configure the runs that trainers begin, as a launcher does; return where they are."""
    for name, value in {"RUN_ID": "job", "DIR": str(tmp_path), "PROJECT": "p", "HARDWARE": "0", "QUIET": "1"}.items():
        monkeypatch.setenv(f"OTEL_RL_{name}", value)
    monkeypatch.setenv("OTEL_RL_EXPORTERS", "jsonl")
    yield tmp_path / "p"
    if (left := otel_rl.current()) is not None:
        left.finish(0)


def test_each_training_is_a_run(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The second one repeats the steps of the first one, under an id of its own; one warning says so."""
    with caplog.at_level(logging.WARNING):
        for offset in (100.0, 200.0, 300.0):
            recording = Recording(dialect="trl")
            train(recording.run, offset, 1, 2)
            assert recording.finish()

    assert {path.name: losses(path) for path in sorted(place.iterdir())} == {
        "job": [101.0, 102.0],
        "job-2": [201.0, 202.0],
        "job-3": [301.0, 302.0],
    }
    told = [message.rpartition("; ")[2] for message in caplog.messages]
    assert told == [f"training {number} is recorded as run job-{number}" for number in (2, 3)]


def test_a_training_that_goes_on_is_an_attempt_of_its_run(place: Path) -> None:
    """The same trainer, from a checkpoint: its steps are repeated, and the last attempt wins."""
    first = Recording()
    train(first.run, 0.0, 1, 2, 3)
    first.finish()
    second = Recording(after=first)
    train(second.run, 100.0, 2, 3)
    second.finish()

    assert losses(place / "job") == [1.0, 102.0, 103.0]
    assert [path.name for path in place.iterdir()] == ["job"]


def test_trainings_inside_a_run_of_the_script(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All are in the run that there is: names of the later ones have a prefix, and no step is refused or repeated."""
    with otel_rl.init() as run, caplog.at_level(logging.WARNING):
        for offset in (100.0, 200.0, 300.0):
            recording = Recording(dialect="trl")
            train(recording.run, offset, 0, 1)
            recording.run.log({"eval": offset}, step=1)
            recording.finish()
        assert otel_rl.current() is run
    values = [
        {name: value for name, value in row.items() if "loss" in name or "eval" in name}
        for row in (row["values"] for row in rows_of(place / "job"))
        if isinstance(row, dict)
    ]

    assert [row["step"] for row in rows_of(place / "job")] == [0, 1, 2, 3, 4, 5]
    assert values == [
        *({"loss": 100.0}, {"loss": 101.0, "eval": 100.0}),
        *({"2/loss": 200.0}, {"2/loss": 201.0, "2/eval": 200.0}),
        *({"3/loss": 300.0}, {"3/loss": 301.0, "3/eval": 300.0}),
    ]
    assert [record.getMessage() for record in caplog.records if "refused" in record.getMessage()] == []
    assert len(caplog.records) == 2


def test_loggers_of_one_training_share_its_run(place: Path) -> None:
    """Those that are open together, or come while a step is open, are of one training."""
    with otel_rl.init() as run:
        first, second = Recording(), Recording()
        train(first.run, 0.0, 0)
        first.finish()
        second.finish()
        with run.step(1):
            assert Recording().run is run
    assert first.run is second.run is run


def test_a_training_that_failed_is_over(place: Path) -> None:
    """An exception that the script catches ends the training, though nobody called `finish`."""
    with otel_rl.init() as run:
        failed = Recording()
        train(failed.run, 0.0, 0, 1)
        failed.abandon()
        train(Recording().run, 5.0, 0)
        assert steps_of(run).open is None

    assert [row["step"] for row in rows_of(place / "job")] == [0, 1, 2]


def test_names_of_later_trainings_keep_their_meaning() -> None:
    """`2/train/loss` is a loss, so that dashboards have it."""
    vocabulary = Vocabulary("trl")

    assert vocabulary.read("2/train/loss") == vocabulary.read("train/loss")
    assert vocabulary.read("2/train/loss") is not None
    assert vocabulary.read("2/unheard_of") is None
    assert vocabulary.read("train/loss").metric == semconv.METRIC_TRAIN_LOSS  # type: ignore[union-attr]


def test_trainings_of_other_processes(place: Path) -> None:
    """Their runs are chosen here, in the order of the trainings."""
    assert elsewhere({}) == {"project": "p", "id": "job", "name": "job", "dir": str(place.parent)}
    assert elsewhere({})["id"] == "job-2"


def test_a_training_of_other_processes_beside_a_run(place: Path) -> None:
    """It gets a run of its own: this process is the rank 0 of the present one."""
    run = otel_rl.init()

    assert elsewhere({})["id"] == "job-2"
    assert run.finish()


def test_a_training_that_was_meant_for_other_processes(place: Path) -> None:
    """It keeps its id, if it takes place in this process after all."""
    recording = Recording(**elsewhere({}))

    assert recording.run.id == "job"
    assert recording.finish()
