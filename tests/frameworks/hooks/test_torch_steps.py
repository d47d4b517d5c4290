"""Steps of plain PyTorch loops: the work between two logged values, with the number of the second."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from otel_rl.frameworks import instrument
from otel_rl.recorder.journal.records import Logged, SpanStarted, StepEnded, StepStarted
from otel_rl.recorder.trainer.run import Run
from tests.real_parts import needs
from tests.recorder.trainer.reading import RecordsOf

pytestmark = needs("tensorboard")
Work = Callable[[], None]
Log = Callable[[int], None]


@pytest.fixture
def work() -> Iterator[Work]:
    """Return a minibatch of a hooked trainer: a backward pass, and a step of the optimizer."""
    instrument.instrument("torch")
    instrument.capture("tensorboard")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def minibatch() -> None:
        optimizer.zero_grad()
        model(torch.ones(3, 2)).mean().backward()
        optimizer.step()

    yield minibatch
    instrument.uninstrument("torch", "tensorboard")


@pytest.fixture
def log(work: Work, tmp_path: Path) -> Iterator[Log]:
    """Return what logs a loss at a step."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path / "tb"))
    yield lambda at: writer.add_scalar("loss", 0.5, at)
    writer.close()


def any_name(work: Work, log: Log) -> list[int]:
    """Count in a variable of any name, from any number."""
    for it in range(1000, 1005):
        for _ in range(3):
            work()
        log(it)
    return [1000, 1001, 1002, 1003, 1004]


def counts_before_it_logs(work: Work, log: Log) -> list[int]:
    """Count between the work and the log."""
    global_step = 0
    for _ in range(4):
        for _ in range(3):
            work()
        global_step += 128
        log(global_step)
    return [128, 256, 384, 512]


def counts_minibatches(work: Work, log: Log) -> list[int]:
    """Log every third minibatch, at their number."""
    for step in range(1, 13):
        work()
        if step % 3 == 0:
            log(step)
    return [3, 6, 9, 12]


def without_a_variable(work: Work, log: Log) -> list[int]:
    """Log at a product, as PPO scripts do with timesteps."""
    for update in range(1, 5):
        for _ in range(3):
            work()
        log(update * 64)
    return [64, 128, 192, 256]


def jumps(work: Work, log: Log) -> list[int]:
    """Log at numbers that nothing foretells."""
    for text in ("0", "1", "50", "51", "900"):
        for _ in range(3):
            work()
        log(int(text))
    return [0, 1, 50, 51, 900]


def logs_each_minibatch(work: Work, log: Log) -> list[int]:
    """Log three times at one number, once after each minibatch."""
    for epoch in range(4):
        for _ in range(3):
            work()
            log(epoch)
    return [0, 1, 2, 3]


def has_another_counter(work: Work, log: Log) -> list[int]:
    """Have a usual name for what is not the step, and equals it at first."""
    for epoch in range(2):
        for it in range(2):
            for _ in range(3):
                work()
            log(2 * epoch + it)
    return [0, 1, 2, 3]


class Trainer:
    """Counts in an attribute."""

    it = 0

    def train(self, work: Work, log: Log) -> list[int]:
        """Work in a method of a trainer, as rsl_rl does."""
        for self.it in range(4):
            for _ in range(3):
                work()
            log(self.it)
        return [0, 1, 2, 3]


def in_another_thread(work: Work, log: Log) -> list[int]:
    """Log in a thread of the tracker's own."""
    for step in range(4):
        for _ in range(3):
            work()
        thread = threading.Thread(target=log, args=(step,))
        thread.start()
        thread.join()
    return [0, 1, 2, 3]


@pytest.mark.parametrize(
    "loop",
    [
        any_name,
        counts_before_it_logs,
        counts_minibatches,
        without_a_variable,
        jumps,
        logs_each_minibatch,
        has_another_counter,
        Trainer().train,
        in_another_thread,
    ],
)
def test_a_step_is_the_work_that_one_number_is_logged_for(
    loop: Callable[[Work, Log], list[int]], work: Work, log: Log, recording: Run, records_of: RecordsOf
) -> None:
    """Its minibatches are phases of it, whatever the counter is called and wherever it jumps."""
    logged = loop(work, log)
    recording.finish()
    records = records_of(recording)
    backward = Counter(one.step for one in records if isinstance(one, SpanStarted) and one.name == "backward")

    assert [one.step for one in records if isinstance(one, StepStarted)] == logged
    assert backward == dict.fromkeys(logged, 3)
    assert sorted({one.step for one in records if isinstance(one, Logged)}) == logged


def test_a_step_that_is_numbered_late_began_with_its_work(
    work: Work, log: Log, recording: Run, records_of: RecordsOf
) -> None:
    """It begins where the step before it ends, and its phases lie in it."""
    jumps(work, log)
    recording.finish()
    records = records_of(recording)
    starts = {one.step: one.time for one in records if isinstance(one, StepStarted)}
    ends = {one.step: one.time for one in records if isinstance(one, StepEnded)}
    phases = [(one.step, one.time) for one in records if isinstance(one, SpanStarted)]

    assert [ends[step] for step in (0, 1, 50, 51)] == [starts[step] for step in (1, 50, 51, 900)]
    assert all(step is not None and starts[step] <= time <= ends[step] for step, time in phases)


def test_work_that_nothing_is_logged_for(work: Work, log: Log, recording: Run, records_of: RecordsOf) -> None:
    """It is in no step, and is not lost when the run ends."""
    work()
    log(7)
    work()
    recording.finish()
    phases = [one for one in records_of(recording) if isinstance(one, SpanStarted) and one.name == "backward"]

    assert [one.step for one in phases] == [7, None]


def test_an_axis_of_seconds_is_not_a_step(work: Work, tmp_path: Path, recording: Run, records_of: RecordsOf) -> None:
    """rsl_rl draws its reward a second time over seconds; without a step, a value is at none of the training."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "tb")) as writer:
        for it in range(3):
            work()
            writer.add_scalar("note", 1.0)
            writer.add_scalar("Train/mean_reward", 0.5, it)
            writer.add_scalar("Train/mean_reward/time", 0.5, 1000 + 7 * it)
    recording.finish()
    records = records_of(recording)
    steps = {(name, one.step) for one in records if isinstance(one, Logged) for name in one.values}

    assert steps == {("note", 0)} | {(f"Train/mean_reward{end}", it) for end in ("", "/time") for it in range(3)}
    assert [one.step for one in records if isinstance(one, StepStarted)] == [0, 1, 2]
