"""Wrappers around a method of one object."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

from otel_rl.frameworks.patches import wrap_method


class Trainer:
    """A trainer whose method returns the trainer's number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def step(self, more: int) -> int:
        """Return a sum."""
        return self.number + more


def twice(method: Any, _: Trainer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Double what a method returns."""
    return 2 * method(*args, **kwargs)


def test_once() -> None:
    """A second wrapper changes nothing, nor does a method that does not exist; other objects have none."""
    trainer = Trainer(1)
    for name in ("step", "step", "absent"):
        wrap_method(trainer, name, twice)

    assert (trainer.step(1), trainer.step(more=2), Trainer(1).step(1)) == (4, 6, 2)


def test_copies() -> None:
    """A copy calls its own method, without a wrapper."""
    trainer = Trainer(1)
    wrap_method(trainer, "step", twice)
    for other in (copy.deepcopy(trainer), pickle.loads(pickle.dumps(trainer))):
        other.number = 10
        assert other.step(1) == 11


def test_the_object_ends() -> None:
    """Nothing keeps an object alive because its method is wrapped."""
    trainer = Trainer(1)
    wrap_method(trainer, "step", twice)
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()

    assert gone() is None
