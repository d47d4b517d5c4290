"""The guard of code that must not raise: it counts exceptions, and the program continues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.interrupts import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Guard:
    """A context manager that passes an exception of its block to `count`, and continues after the block.

    Interrupts pass: `KeyboardInterrupt`, `SystemExit`, and whatever a signal handler of the trainer raises.

    Args:
        count: Gets the exception. It counts it, and says where it is seen: in a log, a metric, a file.
    """

    __slots__ = ("_count",)

    def __init__(self, count: Callable[[Exception], object]) -> None:
        self._count = count

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Count the exception of the block, if there is one; return whether it ends here."""
        if not isinstance(error, Exception):
            return False
        let_pass(error)
        self._count(error)
        return True
