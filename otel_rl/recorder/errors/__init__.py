"""Exceptions, warnings, texts without control characters, interrupts, and signals; `redaction` removes secrets.

Every room may import it. It imports none.
"""

from __future__ import annotations

from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.secrets import redacted


class SettingsError(ValueError):
    """A setting is invalid; the message names it and the fix, without secrets."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(redacted(text)))


class UnavailableError(SettingsError):
    """The machine does not allow what the settings require; `init` raises it only with `strict=True`."""


class UnwritableError(UnavailableError):
    """A directory cannot be written."""


UNDECODABLE = (ValueError, RecursionError)
"""The exceptions of decoders for bytes that are damaged or hostile.

The errors of msgspec are `ValueError`. So are those of invalid UTF-8 and of numbers with too many digits, which are not
msgspec's own. Values that nest too deeply raise `RecursionError`.
"""
