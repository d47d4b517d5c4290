"""The variable in which a loop counts its steps: what the work of each step is numbered."""

from __future__ import annotations

from collections.abc import Callable

from otel_rl.frameworks.loop_counter import LoopCounter, usual_counter

Loop = Callable[[LoopCounter], list[tuple[int | None, int]]]
"""Returns the step that was read at the beginning of the work, and the one that was logged after it."""


def logs_before_it_counts(counter: LoopCounter) -> list[tuple[int | None, int]]:
    """Log at the index of a `for`."""
    found, other = [], 0
    for step in range(4):
        found.append((counter.read(), step))
        counter.learn(step)
        other += 7
    return found


def logs_after_it_counted(counter: LoopCounter) -> list[tuple[int | None, int]]:
    """Count between the work and the log."""
    found, global_step = [], 0
    while global_step < 4:
        read = counter.read()
        global_step += 1
        counter.learn(global_step)
        found.append((read, global_step))
    return found


def counts_frames(counter: LoopCounter) -> list[tuple[int | None, int]]:
    """Train in several batches after each rollout, as PPO does, with frames as steps."""
    found, global_step = [], 0
    for frames in (128, 64, 200, 50):
        global_step += frames
        found += [(counter.read(), global_step) for _ in range(3)]
        counter.learn(global_step)
    return found


class Trainer:
    """Counts in an attribute, and trains and logs in methods of its own."""

    def __init__(self, counter: LoopCounter) -> None:
        self._counter, self.updates = counter, 0

    def train(self) -> int | None:
        """Work on a step."""
        return self._counter.read()

    def log(self, at: int) -> None:
        """Log it."""
        self._counter.learn(at)

    def fit(self) -> list[tuple[int | None, int]]:
        """Train."""
        found = []
        for _ in range(4):
            read = self.train()
            self.updates += 10
            self.log(self.updates)
            found.append((read, self.updates))
        return found


def test_an_index() -> None:
    """Each step has the number that is logged, once the variable has foretold one."""
    assert logs_before_it_counts(LoopCounter()) == [(None, 0), (None, 1), (2, 2), (3, 3)]


def test_what_counts_before_it_logs() -> None:
    """The difference is learned with the first value."""
    assert logs_after_it_counted(LoopCounter()) == [(None, 1), (None, 2), (3, 3), (4, 4)]


def test_several_batches_of_a_step() -> None:
    """They have one number, from the first one on."""
    assert counts_frames(LoopCounter())[6:] == [(392, 392)] * 3 + [(442, 442)] * 3


def test_an_attribute() -> None:
    """It is found as a variable is."""
    assert Trainer(LoopCounter()).fit() == [(None, 10), (None, 20), (30, 30), (40, 40)]


def test_a_variable_that_foretells_wrongly_is_forgotten() -> None:
    """It agreed twice by chance."""
    counter, found = LoopCounter(), []
    for epoch in range(2):
        for it in range(3):
            found.append((counter.read(), step := 10 * epoch + it))
            counter.learn(step)

    assert found == [(None, 0), (None, 1), (2, 2), (0, 10), (None, 11), (None, 12)]


def test_no_variable() -> None:
    """Nothing is read if no variable holds what is logged."""
    counter = LoopCounter()
    found = []
    for text in ("3", "5", "8"):
        found.append(counter.read())
        counter.learn(int(text))

    assert found == [None] * 3


def test_a_process_that_logs_nothing() -> None:
    """It is believed to count in `global_step`."""
    assert usual_counter() is None
    global_step = 7
    assert usual_counter() == global_step
