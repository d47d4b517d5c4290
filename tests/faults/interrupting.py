"""Exceptions that come from outside, at each line of the library in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import otel_rl

_LIBRARY = str(Path(otel_rl.__file__).parent)


class Interrupter:
    """Raises at the `n`-th line of otel-rl that a call runs, as a signal handler would.

    Attributes:
        raised: Whether there were that many lines.
        place: The line.
    """

    def __init__(self, n: int, error: Callable[[], BaseException]) -> None:
        self._left = n
        self._error = error
        self.raised = False
        self.place = ""

    def __enter__(self) -> Interrupter:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> object:
        if self.raised or not frame.f_code.co_filename.startswith(_LIBRARY):
            return None
        if event == "line":
            if self._left == 0:
                self.raised = True
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                sys.settrace(None)
                raise self._error()
            self._left -= 1
        return self._trace


def each_line(
    call: Callable[[], object], error: Callable[[], BaseException] = KeyboardInterrupt, *, every: int = 1
) -> Iterator[str]:
    """Run `call` again and again, interrupted one line later each time; yield where, until it runs to its end.

    The call may handle the exception or let it pass, but not turn it into another one.
    """
    n = 0
    while True:
        with Interrupter(n, error) as interrupter:
            try:
                call()
            except BaseException as passed:
                if not interrupter.raised or type(passed) is not type(error()):
                    raise
        if not interrupter.raised:
            return
        yield interrupter.place
        n += every
