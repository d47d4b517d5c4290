"""Readings of the variables of a function that is being called."""

from __future__ import annotations

from collections.abc import Mapping

from otel_rl.frameworks.timers import Timers


def number(variables: Mapping[str, object]) -> object:
    """Return the number of the step."""
    return variables.get("step")


def test_what_is_read_is_not_kept() -> None:
    """A batch that a trainer drops is freed, though a timer has read another variable of the same function."""
    freed: list[str] = []

    class Batch:
        def __del__(self) -> None:
            freed.append("freed")

    batch, step = Batch(), 3
    assert Timers("step", number).number_here() == step
    assert batch
    del batch

    assert freed == ["freed"]


def test_what_the_script_has_kept_stays() -> None:
    """Scripts pass `locals()` on as their configuration."""

    def train(step: int) -> dict[str, object]:
        config = locals()
        Timers("step", number).number_here()
        return config

    assert train(3)["step"] == 3
