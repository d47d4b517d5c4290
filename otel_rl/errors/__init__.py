"""Exceptions, repeated warnings, interrupts that the trainer's own code handles, and signals that stop the process.

Every room may import it. It imports none.
"""

from __future__ import annotations


class SettingsError(ValueError):
    """A setting is invalid; the message names it and the fix."""


class UnavailableError(SettingsError):
    """The machine does not allow what the settings require; `init` raises it only with `strict=True`."""


class UnwritableError(UnavailableError):
    """A directory cannot be written."""
