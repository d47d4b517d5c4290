"""Exceptions, repeated warnings, interrupts that the trainer's own code handles, and signals that stop the process.

Every room may import it. It imports none.
"""

from __future__ import annotations


class SettingsError(ValueError):
    """A setting is wrong; the message names it and says what to do."""


class UnavailableError(SettingsError):
    """The machine does not allow what the settings ask for; only `strict` makes `init` raise it."""


class UnwritableError(UnavailableError):
    """A directory cannot be written."""
