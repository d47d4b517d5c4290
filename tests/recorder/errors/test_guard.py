"""The guard of code that must not raise."""

from __future__ import annotations

import signal

import pytest

from otel_rl.recorder.errors.guard import Guard

_IN_THE_LIBRARY = """
with Guard(counted.append):
    signal.raise_signal(signal.SIGUSR1)
"""


def test_an_exception_is_counted_and_ends_there() -> None:
    """The program continues after the block, and `count` has the exception."""
    counted: list[Exception] = []
    with Guard(counted.append):
        raise ValueError("a")
    with Guard(counted.append):
        pass

    assert [str(error) for error in counted] == ["a"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass(kind: type[BaseException]) -> None:
    """They are not counted."""
    counted: list[Exception] = []
    with pytest.raises(kind), Guard(counted.append):
        raise kind

    assert counted == []


def test_what_a_signal_handler_of_the_trainer_raises_passes() -> None:
    """It is not counted: the trainer waits for it, wherever the library is at that moment."""
    counted: list[Exception] = []

    def alarm(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, alarm)
    try:
        with pytest.raises(TimeoutError):
            exec(
                _IN_THE_LIBRARY, {"__name__": "otel_rl.somewhere", "Guard": Guard, "signal": signal, "counted": counted}
            )
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert counted == []
