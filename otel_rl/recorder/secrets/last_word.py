"""The user's own function that sees each text and name before it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.interrupts import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable

REDACTED = "[redacted]"
"""The text that replaces a secret."""


class LastWord:
    """A function that gets each text after the rules, and returns what is recorded.

    If it raises or returns another type than `str`, the text is replaced, and counted.

    Args:
        function: Gets the text, and the name of the value that has it; the name is empty for names and messages.
    """

    def __init__(self, function: Callable[[str, str], object]) -> None:
        self._function = function
        self._refuse: Callable[[str, str], object] = self._wait
        self._waiting: list[tuple[str, str]] = []

    def __call__(self, text: str, name: str) -> str:
        """Return what is recorded instead of a text."""
        try:
            found = self._function(text, name)
            if isinstance(found, str):
                return str(found)
            problem = f"returned {type(found).__name__} instead of str"
        except Exception as error:
            let_pass(error)
            problem = f"raised {type(error).__name__}"  # its message can have the text
        self._refuse("redact", f"redact.function {problem}; the text is replaced by {REDACTED}")
        return REDACTED

    def count_with(self, refuse: Callable[[str, str], object]) -> None:
        """Count failures with a function that gets a reason and a message, from the first one on."""
        self._refuse = refuse
        while self._waiting:
            refuse(*self._waiting.pop())

    def _wait(self, reason: str, message: str) -> None:
        self._waiting.append((reason, message))
